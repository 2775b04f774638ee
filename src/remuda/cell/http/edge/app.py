"""The cell's ASGI application: which code answers a request, and what all answers have in common.

Decided here: the hottest endpoints and git go straight to plain ASGI, all others through Starlette's router; every
answer carries the request's id; an unexpected error becomes a 500 that says nothing, and a log line that says
everything. The tables of endpoints are in the other modules.

Paths are matched as they were sent, before percent-decoding: `/projects/acme%2Fshop` is one part after `projects`.
"""

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
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from remuda.cell.http.edge import health
from remuda.cell.http.edge.access import GIT, JOB, OPEN, RUNNER, Access
from remuda.cell.http.edge.admission import admit
from remuda.cell.http.edge.auditing import Auditor
from remuda.cell.http.edge.bodies import limit_silence
from remuda.cell.http.edge.connections import send_whole
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import ApiError, ClientGoneError, json_answer, refusal, unwrap
from remuda.cell.http.edge.openapi import document
from remuda.cell.http.edge.rate_limits import RateLimits
from remuda.cell.http.git import protected_branches, repository, repository_files, repository_refs, smart_http
from remuda.cell.http.gitlab import (
    artifact_retention,
    audit_events,
    groups,
    job_token_scope,
    jobs,
    lint,
    members,
    openid_discovery,
    personal_tokens,
    pipeline_create,
    pipelines,
    projects,
    registry_auth,
    releases,
    runner_tokens,
    runners,
    schedules,
    test_reports,
    triggers,
    users,
    variables,
)
from remuda.cell.http.remuda import demand, events, job_why, pipeline_progress, shells, step_policies
from remuda.cell.http.runner import artifacts, job_request, job_state, results, shell, trace
from remuda.telemetry.logs import logger
from remuda.wire.runner_api import JobPayload, RequestJob, UpdateJob


async def _show_document(edge: Edge, request: Request) -> Response:
    """GET /api/remuda/v1/openapi.json: this document."""
    return Response(api_document(), media_type="application/json")


def _direct(method: str, path: str, answer: Callable[..., Awaitable[None]], access: Access, **told: Any) -> Endpoint:
    """A call that the application answers itself, past the router."""
    handler: Any = answer
    return Endpoint(method, path, handler, access, **told)


ENDPOINTS: tuple[Endpoint, ...] = tuple(
    chain(
        health.ENDPOINTS,
        openid_discovery.ENDPOINTS,
        registry_auth.ENDPOINTS,
        job_state.ENDPOINTS,
        # Answered by the application itself like those of DIRECT; the router knows by it which methods there are.
        (_direct("PUT", job_state.UPDATE_ROUTE, job_state.update_job, JOB, takes=UpdateJob, gives=int, also=(202,)),),
        runner_tokens.ENDPOINTS,
        artifacts.ENDPOINTS,
        results.ENDPOINTS,
        artifact_retention.ENDPOINTS,
        test_reports.ENDPOINTS,
        trace.ENDPOINTS,
        projects.ENDPOINTS,
        protected_branches.ENDPOINTS,
        job_token_scope.ENDPOINTS,
        groups.ENDPOINTS,
        members.ENDPOINTS,
        users.ENDPOINTS,
        personal_tokens.ENDPOINTS,
        repository.ENDPOINTS,
        repository_refs.ENDPOINTS,
        repository_files.ENDPOINTS,
        releases.ENDPOINTS,
        pipeline_create.ENDPOINTS,
        pipelines.ENDPOINTS,
        schedules.ENDPOINTS,
        triggers.ENDPOINTS,
        lint.ENDPOINTS,
        jobs.ENDPOINTS,
        job_why.ENDPOINTS,
        shells.ENDPOINTS,
        shell.ENDPOINTS,
        step_policies.ENDPOINTS,
        demand.ENDPOINTS,
        events.ENDPOINTS,
        pipeline_progress.ENDPOINTS,
        variables.ENDPOINTS,
        runners.ENDPOINTS,
        audit_events.ENDPOINTS,
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
        query={"token": str},
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
    ),
    _direct(
        "POST", f"{smart_http.ROUTE}/{smart_http.PUSH}", smart_http.serve_git, GIT, takes=bytes, gives=bytes, status=200
    ),
)


@cache
def api_document() -> bytes:
    """The OpenAPI document of all endpoints, as JSON."""
    return msgspec.json.encode(document((*ENDPOINTS, *DIRECT)))


UNMATCHED = "unmatched"
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_CLIENT_GONE = 499
_POLLING = (b"gitlab-ci-builds-polling", b"yes")

_log = logger("cell")


class CellApp:
    """One cell's edge."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._name = secrets.token_hex(12)
        self._own_header = (b"x-remuda-cell", str(edge.settings.cell_id).encode())
        self._numbers = count(1)
        """Requests without an id of their own are numbered."""
        self._limits = RateLimits(edge.settings, edge.clock)
        auditor = Auditor(edge)
        self._router = Router([_route(edge, endpoint, auditor) for endpoint in ENDPOINTS], redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        shown_id = _client_request_id(scope)
        exchange = _Exchange(self._own_header, send, shown_id or f"{self._name}{next(self._numbers):x}")
        began = self._edge.clock.monotonic()
        receive = limit_silence(receive, self._edge.settings.body_silent_seconds, self._edge.clock)
        # Starlette raises for 404 and 405, instead of answering in its own form, when it sees an "app".
        scope = {**scope, "path": scope["raw_path"].decode("ascii"), "root_path": "", "app": self}
        scope["request_id"] = exchange.request_id
        admitted = None
        try:
            admitted = self._limits.admit(scope)
            exchange.add(admitted.headers)
            await self._serve(scope, receive, exchange, shown_id)
        except Exception as error:  # noqa: BLE001 - the last place where an error can be turned into an answer
            await self._refuse(unwrap(error), scope, receive, exchange)
        finally:
            if admitted is not None:
                self._limits.note_answer(admitted, exchange.status)
            exchange.route = exchange.route or getattr(scope.get("route"), "path", UNMATCHED)
            self._record(scope["method"], exchange, began)

    def take_at_once(self, cycle: RequestResponseCycle) -> bool:
        """Answer the next piece of a log about which everything is known, without a task of its own: nothing is called
        more often. False for every other call, which has to go the long way; nothing has come of it then that would not
        be the same if it came again."""
        scope: Any = cycle.scope
        send: Any = cycle.send
        found = trace.PATH.fullmatch(scope["raw_path"].decode("ascii"))
        if found is None:
            return False
        began = self._edge.clock.monotonic()
        try:
            job = trace.known_job(self._edge, int(found[1]), scope)
            admitted = None if job is None else self._limits.admit(scope)
            answer = None if job is None else trace.take_known(self._edge, job, scope, bytes(cycle.body))
        except Exception as error:  # noqa: BLE001 - whatever it is, the long way has an answer to it
            _log.debug("a piece of a log goes the long way", path=scope["path"], error=str(error))
            return False
        exchange = _Exchange(
            self._own_header, send, _client_request_id(scope) or f"{self._name}{next(self._numbers):x}"
        )
        if admitted is None or answer is None:
            return False
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
            "request",
            method=method,
            route=exchange.route,
            status=exchange.status,
            seconds=round(seconds, 4),
            request=exchange.request_id,
        )

    async def _serve(self, scope: Scope, receive: Receive, exchange: "_Exchange", shown_id: str) -> None:
        path, method = scope["path"], scope["method"]
        if path == job_request.ROUTE and method == "POST":
            exchange.route = job_request.ROUTE
            exchange.headers.append(_POLLING)
            await job_request.request_job(self._edge, scope, receive, exchange.send, shown_id=shown_id)
        elif method == "PATCH" and (found := trace.PATH.fullmatch(path)):
            exchange.route = trace.ROUTE
            await trace.patch_trace(self._edge, int(found[1]), scope, receive, exchange.send)
        elif method == "PUT" and (found := job_state.UPDATE_PATH.fullmatch(path)):
            exchange.route = job_state.UPDATE_ROUTE
            await job_state.update_job(self._edge, found[1], scope, receive, exchange.send)
        elif found := smart_http.PATH.fullmatch(path):
            exchange.route = f"{smart_http.ROUTE}/{found[2]}"
            await smart_http.serve_git(self._edge, found[1], found[2], scope, receive, exchange.send)
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
                "a request failed",
                method=scope["method"],
                path=scope["path"],
                request=exchange.request_id,
                exc_info=error,
            )
        elif answer.status >= 500:
            _log.warning("a request must wait", path=scope["path"], request=exchange.request_id, error=str(error))
        if exchange.status:
            # Part of an answer is out. Ending here cuts the connection, so the client knows that it is incomplete.
            return
        answer = answer or ApiError(500, {"message": "500 Internal Server Error"})
        await json_answer(answer.body, answer.status, answer.headers)(scope, receive, exchange.send)


class _Exchange:
    """One request's answer on its way out."""

    def __init__(self, header: tuple[bytes, bytes], send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 0
        """0 until the answer has begun."""
        self.route = ""
        self.headers = [(b"x-request-id", request_id.encode()), header]

    def add(self, headers: Mapping[str, str]) -> None:
        """Have further headers in the answer."""
        self.headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]

    def send_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """The same for an answer that is whole; whether it could be sent so."""
        is_sent = send_whole(self._send, status, (*headers, *self.headers), body)
        self.status = status if is_sent else self.status
        return is_sent

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self.headers]
        await self._send(message)


def _client_request_id(scope: Scope) -> str:
    """The id that the caller gave its request, if it is one that may be repeated in logs and answers."""
    value = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode("latin-1")
    return value if _REQUEST_ID.fullmatch(value) else ""


def _route(edge: Edge, endpoint: Endpoint, auditor: Auditor) -> Route:
    is_minded = auditor.is_recorded(endpoint)

    async def answer(request: Request) -> Response:
        if is_minded:
            return await auditor.answer(endpoint, request)
        await admit(edge, endpoint.access, request)
        return await endpoint.handler(edge, request)

    return Route(endpoint.path, answer, methods=[endpoint.method])
