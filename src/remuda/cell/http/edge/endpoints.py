"""What every endpoint works with, and how an endpoint is declared.

Nothing is decided here. `remuda.cell.service` makes the one `Edge` of a cell, `remuda.cell.http.edge.app` hands it to
each handler.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.blobs.upload_parsers import Parsers
from remuda.cell.dispatch.dispatcher import Dispatch
from remuda.cell.events import Events
from remuda.cell.http.edge.access import Access
from remuda.cell.http.runner.managers import Managers
from remuda.cell.metrics import CellMetrics
from remuda.cell.pipelines.creation import Pipelines
from remuda.cell.pipelines.releases import Releases
from remuda.cell.pipelines.schedules import Schedules
from remuda.cell.projects.projects import Projects
from remuda.cell.projects.registry import Registry
from remuda.cell.settings import CellSettings
from remuda.cell.shells.shells import Shells
from remuda.cell.store.ports import Blobs, Store, Traces
from remuda.lib.clock import Clock


class Edge(msgspec.Struct, frozen=True, kw_only=True):
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
    events: Events
    shells: Shells
    parsers: Parsers
    clock: Clock
    registry: Registry | None = None
    """Who makes tokens for the Docker registry, where there is one."""


class Shape(msgspec.Struct, kw_only=True):
    """Base of the JSON responses. A field that some responses leave out has the default `UNSET`."""


Handler = Callable[[Edge, Request], Awaitable[Response]]


class Endpoint(msgspec.Struct, frozen=True):
    """A route. The handler runs when the caller may make the call (`admission`).

    What stands behind `access` tells the callers (`openapi`) what they may send and what they get.
    """

    method: str
    path: str
    handler: Handler
    access: Access
    takes: Any = None
    """The type that the handler reads with `parameters`: from a query, a form or JSON."""
    query: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What the handler reads from the query besides: names with their types."""
    gives: Any = None
    """The type of a good answer: lists come in pages; bytes, for whatever is no JSON; None: no content."""
    status: int = 0
    """Of a good answer; 0: 204 without content, 201 of a POST, else 200."""
    also: tuple[int, ...] = ()
    """Further statuses that are this endpoint's own."""
    headers: tuple[str, ...] = ()
    """Headers that the handler reads, beside those that show who asks."""

    @property
    def good_status(self) -> int:
        return self.status or (204 if self.gives is None else 201 if self.method == "POST" else 200)

    @property
    def summary(self) -> str:
        """What the handler's docstring says behind the call's own name."""
        return (self.handler.__doc__ or "").partition(": ")[2].partition("\n")[0]
