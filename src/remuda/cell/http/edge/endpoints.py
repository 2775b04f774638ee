"""What every handler gets (`Edge`), how an endpoint is declared (`Endpoint`), and the base of JSON responses (`Shape`).
`remuda.cell.service` creates the one `Edge` of a cell."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Self

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.blobs.port import Blobs
from remuda.cell.blobs.upload_parsers import Parsers
from remuda.cell.dispatch.dispatcher import Dispatch
from remuda.cell.events import Events
from remuda.cell.http.edge.access import Access
from remuda.cell.http.runner.managers import Managers
from remuda.cell.metrics import CellMetrics
from remuda.cell.operations.usage_recorder import UsageRecorder
from remuda.cell.pipelines.creation import Pipelines
from remuda.cell.pipelines.environments import Environments
from remuda.cell.pipelines.releases import Releases
from remuda.cell.pipelines.schedules import Schedules
from remuda.cell.pipelines.webhooks import Webhooks
from remuda.cell.projects.projects import Projects
from remuda.cell.projects.registry import Registry
from remuda.cell.settings import CellSettings
from remuda.cell.shells.shells import Shells
from remuda.cell.store.ports import Store
from remuda.cell.traces.port import Traces
from remuda.cell.traces.readers import TraceReaders
from remuda.lib.clock import Clock


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """What every handler gets: the settings, the store and the other parts of the cell that handlers use."""

    settings: CellSettings
    """With the port that is really bound, and the public address."""
    store: Store
    traces: Traces
    trace_readers: TraceReaders
    blobs: Blobs
    dispatch: Dispatch
    projects: Projects
    pipelines: Pipelines
    releases: Releases
    schedules: Schedules
    environments: Environments
    managers: Managers
    metrics: CellMetrics
    events: Events
    shells: Shells
    webhooks: Webhooks
    parsers: Parsers
    clock: Clock
    usage: UsageRecorder
    setting_sources: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Where each setting that was given comes from, by name: a file, a variable or `option`."""
    registry: Registry | None = None
    """Signs tokens for the Docker registry; None if the cell has none."""


class Shape(msgspec.Struct, kw_only=True):
    """Base class of the types of JSON responses. A field that some responses leave out has the default `UNSET`."""

    @classmethod
    def of(cls, value: object, /, **fields: Any) -> Self:
        """Create a response from `fields`; the other required fields are copied from the attributes of `value` with the
        same name. Fields with a default are not copied, so that a response never contains more than intended."""
        copied = {name: getattr(value, name) for name in _list_required_fields(cls) if name not in fields}
        return cls(**copied, **fields)


@cache
def _list_required_fields(shape: type[Shape]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(shape) if field.required)


Handler = Callable[[Edge, Request], Awaitable[Response]]


class Endpoint(msgspec.Struct, frozen=True):
    """One HTTP endpoint. The fields after `access` describe parameters and responses for the OpenAPI document."""

    method: str
    path: str
    handler: Handler
    access: Access
    takes: Any = None
    """The type that the handler reads with `parameters`, from a query, a form or JSON; `bytes` for any other body."""
    query: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Further query parameters that the handler reads: names with their types."""
    gives: Any = None
    """The type of a successful response: a list is paged; `bytes` for anything but JSON; None: no content."""
    status: int = 0
    """Status of a successful response; 0: 204 without content, 201 for POST, else 200."""
    also: tuple[int, ...] = ()
    """Further statuses that are particular to this endpoint."""
    headers: tuple[str, ...] = ()
    """Headers that the handler reads, apart from those with tokens."""
    media_type: str = "application/json"
    """The media type of JSON in requests, responses and errors."""

    @property
    def good_status(self) -> int:
        return self.status or (204 if self.gives is None else 201 if self.method == "POST" else 200)

    @property
    def summary(self) -> str:
        """Description for the HTTP reference and OpenAPI: the first line of the handler's docstring."""
        return (self.handler.__doc__ or "").partition("\n")[0]
