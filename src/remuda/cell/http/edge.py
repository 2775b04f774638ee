"""What every endpoint works with, and how an endpoint is declared.

Nothing is decided here. `remuda.cell.service` makes the one `Edge` of a cell, `remuda.cell.http.app` hands it to each
handler.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.dispatch import Dispatch
from remuda.cell.http.access import Access
from remuda.cell.http.managers import Managers
from remuda.cell.metrics import CellMetrics
from remuda.cell.pipelines import Pipelines
from remuda.cell.ports import Blobs, Store, Traces
from remuda.cell.projects import Projects
from remuda.cell.releases import Releases
from remuda.cell.schedules import Schedules
from remuda.cell.settings import CellSettings
from remuda.lib.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The cell behind the edge."""

    settings: CellSettings
    """With the port that is really bound and the public address."""
    store: Store
    traces: Traces
    blobs: Blobs
    dispatch: Dispatch
    projects: Projects
    pipelines: Pipelines
    releases: Releases
    schedules: Schedules
    managers: Managers
    metrics: CellMetrics
    clock: Clock


Handler = Callable[[Edge, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route. The handler runs when the caller may make the call (`admission`)."""

    method: str
    path: str
    handler: Handler
    access: Access
