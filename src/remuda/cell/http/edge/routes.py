"""Declares endpoints: a decorator says method, path and access, the handler's signature says the rest.

    @routes.put("/api/v4/runners/{runner_id}", MANAGES_RUNNER)
    async def update(edge: Edge, caller: Caller, runner: Runner, change: RunnerChange) -> RunnerShape:

The type of each parameter after `edge` says what the handler gets: the request, the caller, the requested page, or the
project, group, runner, pipeline or job in the path (404 if there is none). `Annotated[Schedule, find]`: what the
function `find` loads. Any other type is read from the parameters of the request (400 if they are not valid).

What the handler returns becomes the response: None a 204, a `Paged` one page, a list the page of it that the request
asks for, any other value JSON. A handler that returns a `Response` declares the type of its content with `gives`."""

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Annotated, Any, TypedDict, TypeVar, Unpack, get_args, get_origin

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge.access import Access
from remuda.cell.http.edge.admission import Caller, caller_of
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import json_answer, no_content
from remuda.cell.http.edge.lookup import (
    any_job_in_path,
    group_in_path,
    job_in_path,
    pipeline_in_path,
    project_in_path,
    runner_in_path,
)
from remuda.cell.http.edge.paging import Paged, page_answer, page_of, slice_answer
from remuda.cell.http.edge.unsupported_fields import HEADER, find_ignored_filters, header_text
from remuda.cell.values import Job, Page, Pipeline, Project, Runner
from remuda.cell.values.people import Namespace

Loader = Callable[[Edge, Request], Awaitable[Any]]
_Function = TypeVar("_Function", bound=Callable[..., Awaitable[Any]])


class Details(TypedDict, total=False):
    """Optional arguments of `Routes.get` and so on: `Endpoint` fields that override those from the signature."""

    takes: Any
    query: dict[str, Any]
    gives: Any
    status: int
    also: tuple[int, ...]
    headers: tuple[str, ...]


class Routes(list[Endpoint]):
    """The endpoints of a module, in the order in which they are tried. Its decorators add endpoints."""

    def get(self, path: str, access: Access, **details: Unpack[Details]) -> Callable[[_Function], _Function]:
        return partial(self._add, "GET", path, access, details)

    def post(self, path: str, access: Access, **details: Unpack[Details]) -> Callable[[_Function], _Function]:
        return partial(self._add, "POST", path, access, details)

    def put(self, path: str, access: Access, **details: Unpack[Details]) -> Callable[[_Function], _Function]:
        return partial(self._add, "PUT", path, access, details)

    def patch(self, path: str, access: Access, **details: Unpack[Details]) -> Callable[[_Function], _Function]:
        return partial(self._add, "PATCH", path, access, details)

    def delete(self, path: str, access: Access, **details: Unpack[Details]) -> Callable[[_Function], _Function]:
        return partial(self._add, "DELETE", path, access, details)

    def _add(self, method: str, path: str, access: Access, details: Details, function: _Function) -> _Function:
        kinds = {name: kind for name, kind in function.__annotations__.items() if name not in ("edge", "return")}
        loaders = {name: _loader(kind, path) for name, kind in kinds.items()}
        body_types = [kind for name, kind in kinds.items() if isinstance(loaders[name], partial)]
        returned = function.__annotations__["return"]
        fields: Details = {
            "takes": body_types[0] if body_types else None,
            "gives": _find_response_type(returned),
            **details,
        }
        status = Endpoint(method, path, function, access, **fields).good_status

        @wraps(function)
        async def handle(edge: Edge, request: Request) -> Response:
            request.state.query = fields.get("query", {})
            if method == "GET" and fields["takes"] is None and request.scope["query_string"]:
                known = {*request.state.query, *request.path_params}
                request.state.ignored = find_ignored_filters(request.query_params, known)
            values = {name: await load(edge, request) for name, load in loaders.items()}
            answer = _answer(request, await function(edge, **values), status)
            if names := getattr(request.state, "ignored", None):
                answer.raw_headers.append((HEADER.lower().encode(), header_text(names).encode()))
            return answer

        self.append(Endpoint(method, path, handle, access, **fields))
        return function


def _find_response_type(returned: Any) -> Any:
    """Type of the content for a handler with this return type (`Paged`: a list); None for a plain `Response`."""
    if get_origin(returned) is Paged:
        return list[get_args(returned)[0]]  # type: ignore[misc]
    return None if returned is Response else returned


def _loader(kind: Any, path: str) -> Loader:
    if get_origin(kind) is Annotated:
        loader: Loader = kind.__metadata__[0]
        return loader
    if kind is Job:
        return job_in_path if "{id}" in path else any_job_in_path
    return _LOADERS.get(kind) or partial(_parameters, kind)


async def _parameters(kind: type[Any], edge: Edge, request: Request) -> Any:
    return await parameters(request, kind, limit_bytes=edge.settings.body_limit_bytes)


async def _request(edge: Edge, request: Request) -> Request:
    return request


async def _caller(edge: Edge, request: Request) -> Caller:
    return caller_of(request)


async def _page(edge: Edge, request: Request) -> Page:
    return page_of(request)


_LOADERS: dict[Any, Loader] = {
    Request: _request,
    Caller: _caller,
    Page: _page,
    Project: project_in_path,
    Namespace: group_in_path,
    Runner: runner_in_path,
    Pipeline: pipeline_in_path,
}


def _answer(request: Request, value: Any, status: int) -> Response:
    match value:
        case Response():
            return value
        case None:
            return no_content()
        case Paged():
            return page_answer(request, value.entries, value.total, value.page)
        case list():
            return slice_answer(request, value)
        case _:
            return json_answer(value, status)
