"""The cell's ASGI application: passes each request to its handler, limits rates, and turns errors into responses.

The calls that runners make for every job, and git, are dispatched in `_serve` as plain ASGI, which saves 12 % of the
processor time of a job's calls; all others go through Starlette's router. Paths are matched as they were sent, before
percent-decoding, so `acme%2Fshop` in `/projects/acme%2Fshop` is one path segment."""

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from itertools import chain, count
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from remuda.cell.http.edge import health
from remuda.cell.http.edge.access import GIT, JOB, OPEN, RUNNER, Access, Kind
from remuda.cell.http.edge.admission import ANONYMOUS, admit
from remuda.cell.http.edge.auditing import Auditor
from remuda.cell.http.edge.bodies import limit_silence
from remuda.cell.http.edge.connections import send_whole
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import ApiError, ClientGoneError, json_answer, refusal, unwrap
from remuda.cell.http.edge.openapi import document
from remuda.cell.http.edge.rate_limits import RateLimits
from remuda.cell.http.git import (
    commit_details,
    commit_statuses,
    lfs,
    merge_requests,
    protected_branches,
    protected_tags,
    repository,
    repository_files,
    repository_refs,
    smart_http,
)
from remuda.cell.http.gitlab import (
    artifact_retention,
    audit_events,
    groups,
    job_token_scope,
    jobs,
    lint,
    members,
    openid_discovery,
    pipeline_create,
    pipelines,
    projects,
    registry_auth,
    releases,
    runner_tokens,
    runners,
    schedules,
    search,
    templates,
    test_reports,
    triggers,
    users,
    variables,
)
from remuda.cell.http.gitlab.deploy import deployments, environments, resource_groups
from remuda.cell.http.hooks import hooks
from remuda.cell.http.remuda import (
    cell_state,
    demand,
    events,
    file_text,
    job_why,
    pipeline_lists,
    pipeline_progress,
    queue,
    shells,
    step_policies,
    web_addresses,
    web_sessions,
)
from remuda.cell.http.runner import artifacts, job_request, job_state, problem, results, shell, trace
from remuda.cell.http.tokens import access_tokens, deploy_tokens, personal_tokens
from remuda.telemetry.logs import logger
from remuda.wire.runner_api import JobPayload, RequestJob, UpdateJob


async def _show_document(edge: Edge, request: Request) -> Response:
    """Show the OpenAPI document of this cell."""
    return Response(api_document(), media_type="application/json")


def _direct(method: str, path: str, answer: Callable[..., Awaitable[None]], access: Access, **fields: Any) -> Endpoint:
    """Declare an endpoint whose handler `answer` is called by `CellApp._serve` instead of Starlette's router. `fields`:
    other fields of `Endpoint`."""
    handler: Any = answer
    return Endpoint(method, path, handler, access, **fields)


ENDPOINTS: tuple[Endpoint, ...] = tuple(
    chain(
        health.routes,
        openid_discovery.routes,
        registry_auth.routes,
        job_state.routes,
        # Dispatched like those in DIRECT; it is here so that the router answers 405 to other methods.
        (_direct("PUT", job_state.UPDATE_ROUTE, job_state.update_job, JOB, takes=UpdateJob, gives=int, also=(202,)),),
        runner_tokens.routes,
        artifacts.routes,
        results.routes,
        artifact_retention.routes,
        test_reports.routes,
        trace.routes,
        projects.routes,
        protected_branches.routes,
        protected_tags.routes,
        job_token_scope.routes,
        groups.routes,
        members.routes,
        users.routes,
        search.routes,
        hooks.routes,
        personal_tokens.routes,
        access_tokens.routes,
        deploy_tokens.routes,
        repository.routes,
        repository_refs.routes,
        repository_files.routes,
        merge_requests.routes,
        commit_details.routes,
        commit_statuses.routes,
        releases.routes,
        environments.routes,
        deployments.routes,
        resource_groups.routes,
        pipeline_create.routes,
        pipelines.routes,
        schedules.routes,
        triggers.routes,
        lint.routes,
        templates.routes,
        jobs.routes,
        job_why.routes,
        shells.routes,
        shell.routes,
        problem.routes,
        step_policies.routes,
        demand.routes,
        queue.routes,
        cell_state.routes,
        events.routes,
        pipeline_progress.routes,
        pipeline_lists.routes,
        file_text.routes,
        variables.routes,
        runners.routes,
        audit_events.routes,
        web_sessions.routes,
        (Endpoint("GET", "/api/remuda/v1/openapi.json", _show_document, OPEN, gives=dict[str, Any]),),
    )
)


DIRECT: tuple[Endpoint, ...] = (
    _direct(
        "POST",
        job_request.ROUTE,
        job_request.request_job,
        RUNNER,
        takes=RequestJob,
        gives=JobPayload,
        also=(204,),
        headers=("X-Request-Id",),
    ),
    _direct(
        "PATCH",
        trace.ROUTE,
        trace.patch_trace,
        JOB,
        takes=bytes,
        query={"token": str, "debug_trace": bool},
        gives=str,
        status=202,
        also=(416,),
        headers=("Content-Range",),
    ),
    _direct("GET", f"{smart_http.ROUTE}/info/refs", smart_http.serve_git, GIT, query={"service": str}, gives=bytes),
    _direct(
        "POST",
        f"{smart_http.ROUTE}/{smart_http.FETCH}",
        smart_http.serve_git,
        GIT,
        takes=bytes,
        gives=bytes,
        status=200,
        also=(415,),
    ),
    _direct(
        "POST",
        f"{smart_http.ROUTE}/{smart_http.PUSH}",
        smart_http.serve_git,
        GIT,
        takes=bytes,
        gives=bytes,
        status=200,
        also=(415,),
    ),
    *lfs.ENDPOINTS,
)


@cache
def api_document() -> bytes:
    return msgspec.json.encode(document((*ENDPOINTS, *DIRECT)))


_OPEN_PATHS = frozenset(endpoint.path for endpoint in ENDPOINTS if endpoint.access.kind is Kind.OPEN)
UNMATCHED = "unmatched"
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_CLIENT_GONE = 499
_POLLING = (b"gitlab-ci-builds-polling", b"yes")

_NEVER_A_PAGE = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox"}
"""Headers of answers of the API to browsers: whatever a job has uploaded, nothing in it is executed as a page of the
cell, where the session cookie would give it the user's rights."""

_log = logger("cell")


class CellApp:
    """`page_routes`: the routes of the web pages; if it is empty, the addresses of pages redirect to the API."""

    def __init__(self, edge: Edge, page_routes: Sequence[BaseRoute] = ()) -> None:
        self._edge = edge
        self._name = secrets.token_hex(12)
        self._own_header = (b"x-remuda-cell", str(edge.settings.cell_id).encode())
        self._numbers = count(1)
        """Numbers for requests whose client gave no id."""
        self._limits = RateLimits(edge.settings, edge.clock)
        auditor = Auditor(edge)
        api_routes = [_route(edge, endpoint, auditor) for endpoint in ENDPOINTS]
        others = page_routes or [_route(edge, endpoint, auditor) for endpoint in web_addresses.routes]
        self.call_api: ASGIApp = Router(api_routes, redirect_slashes=False)
        """The API alone, which web pages call inside the process."""
        self._checks_no_token = _OPEN_PATHS | {route.path for route in page_routes if isinstance(route, Route)}
        self._router = Router([*api_routes, *others], redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        client_id = _client_request_id(scope)
        exchange = _Exchange(self._own_header, send, client_id or f"{self._name}{next(self._numbers):x}")
        began = self._edge.clock.monotonic()
        receive = limit_silence(receive, self._edge.settings.body_silent_seconds, self._edge.clock)
        # With an "app" in the scope Starlette raises for 404 and 405 instead of answering in its own form.
        scope = {**scope, "path": scope["raw_path"].decode("ascii"), "root_path": "", "app": self}
        scope["request_id"] = exchange.request_id
        admitted = None
        try:
            admitted = self._limits.admit(scope)
            exchange.add(admitted.headers)
            if scope["path"].startswith("/api/") and any(name == b"cookie" for name, _ in scope["headers"]):
                exchange.add(_NEVER_A_PAGE)
            await self._serve(scope, receive, exchange, client_id)
        except Exception as error:  # noqa: BLE001 - the last place where an error can become an answer
            await self._refuse(unwrap(error), scope, receive, exchange)
        finally:
            exchange.route = exchange.route or getattr(scope.get("route"), "path", UNMATCHED)
            is_anonymous = scope.get("state", {}).get("caller") is ANONYMOUS
            if admitted is not None and not is_anonymous and exchange.route not in self._checks_no_token:
                self._limits.note_answer(admitted, exchange.status)
            self._record(scope["method"], exchange, began)

    def append_trace_now(self, cycle: RequestResponseCycle) -> bool:
        """Answer a request that appends to a job log, the most frequent call, without an asyncio task, which saves 40 %
        of its processor time; `cycle` is uvicorn's object for it. Needs job token, job and runner manager in the cache,
        and a body that arrived with the head. If it returns False, nothing was sent, and the ordinary handler must
        answer; that accepts bytes that are already stored."""
        scope: Any = cycle.scope
        send: Any = cycle.send
        match = trace.PATH.fullmatch(scope["raw_path"].decode("ascii"))
        if match is None:
            return False
        began = self._edge.clock.monotonic()
        try:
            job = trace.find_cached_job(self._edge, int(match[1]), scope)
            if job is None:
                return False
            admitted = self._limits.admit(scope)
            answer = trace.append_now(self._edge, job, scope, bytes(cycle.body))
        except Exception as error:  # noqa: BLE001 - the ordinary way answers it
            _log.debug("fast trace append failed; using the ordinary handler", path=scope["path"], error=str(error))
            return False
        if answer is None:
            return False
        exchange = _Exchange(
            self._own_header, send, _client_request_id(scope) or f"{self._name}{next(self._numbers):x}"
        )
        if not exchange.send_whole(answer.status_code, answer.raw_headers, bytes(answer.body)):
            return False
        exchange.route = trace.ROUTE
        self._limits.note_answer(admitted, exchange.status)
        self._record("PATCH", exchange, began)
        return True

    def _record(self, method: str, exchange: "_Exchange", began: float) -> None:
        seconds = self._edge.clock.monotonic() - began
        self._edge.metrics.count_answer(method, exchange.route, exchange.status, seconds)
        _log.debug(
            "request answered",
            method=method,
            route=exchange.route,
            status=exchange.status,
            seconds=round(seconds, 4),
            request=exchange.request_id,
        )

    async def _serve(self, scope: Scope, receive: Receive, exchange: "_Exchange", client_id: str) -> None:
        path, method = scope["path"], scope["method"]
        if path == job_request.ROUTE and method == "POST":
            exchange.route = job_request.ROUTE
            exchange.headers.append(_POLLING)
            await job_request.request_job(self._edge, scope, receive, exchange.send, client_id=client_id)
        elif method == "PATCH" and (match := trace.PATH.fullmatch(path)):
            exchange.route = trace.ROUTE
            await trace.patch_trace(self._edge, int(match[1]), scope, receive, exchange.send)
        elif method == "PUT" and (match := job_state.UPDATE_PATH.fullmatch(path)):
            exchange.route = job_state.UPDATE_ROUTE
            await job_state.update_job(self._edge, match[1], scope, receive, exchange.send)
        elif match := smart_http.PATH.fullmatch(path):
            exchange.route = f"{smart_http.ROUTE}/{match[2]}"
            await smart_http.serve_git(self._edge, match[1], match[2], scope, receive, exchange.send)
        elif match := lfs.PATH.fullmatch(path):
            exchange.route = lfs.find_route(method, match[2]) or UNMATCHED
            await lfs.serve_lfs(self._edge, match[1], match[2], scope, receive, exchange.send)
        elif path.startswith("/api/"):
            # No page, whatever addresses pages have: an unknown method of the API stays 405.
            await self.call_api(scope, receive, exchange.send)
        else:
            await self._router(scope, receive, exchange.send)

    async def _refuse(self, error: Exception, scope: Scope, receive: Receive, exchange: "_Exchange") -> None:
        if isinstance(error, ClientGoneError):
            exchange.status = _CLIENT_GONE
            return
        answer = refusal(error)
        if isinstance(error, HTTPException):
            answer = ApiError(error.status_code, {"error": f"{error.status_code} {error.detail}"})
        if answer is None or (exchange.status and answer.status >= 500):
            _log.error(
                "request failed; answered with an error or cut the connection",
                method=scope["method"],
                path=scope["path"],
                request=exchange.request_id,
                exc_info=error,
            )
        elif answer.status == 503:
            _log.warning(
                "request cannot be served now, answered 503",
                method=scope["method"],
                path=scope["path"],
                request=exchange.request_id,
                error=str(error),
            )
        if exchange.status:
            # Part of the answer is sent. Returning cuts the connection, so the client sees that it is incomplete.
            return
        answer = answer or ApiError(500, {"message": "500 Internal Server Error"})
        await json_answer(answer.body, answer.status, answer.headers)(scope, receive, exchange.send)


class _Exchange:
    """Sends the answer to one request, adds the headers that every answer gets, and keeps the status for metrics."""

    def __init__(self, header: tuple[bytes, bytes], send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 0
        """0 before the answer begins."""
        self.route = ""
        self.headers = [(b"x-request-id", request_id.encode()), header]

    def add(self, headers: Mapping[str, str]) -> None:
        self.headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]

    def send_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send status, headers and body at once. Returns False, with nothing sent, if `send` must be used instead."""
        is_sent = send_whole(self._send, status, (*headers, *self.headers), body)
        self.status = status if is_sent else self.status
        return is_sent

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self.headers]
        await self._send(message)


def _client_request_id(scope: Scope) -> str:
    """The X-Request-Id of the client; empty if it is missing or not safe to repeat in logs and answers."""
    value = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode("latin-1")
    return value if _REQUEST_ID.fullmatch(value) else ""


def _route(edge: Edge, endpoint: Endpoint, auditor: Auditor) -> Route:
    is_recorded = auditor.is_recorded(endpoint)

    async def answer(request: Request) -> Response:
        if is_recorded:
            return await auditor.answer(endpoint, request)
        await admit(edge, endpoint.access, request)
        return await endpoint.handler(edge, request)

    return Route(endpoint.path, answer, methods=[endpoint.method])
