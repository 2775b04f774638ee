"""Traces: bytes in at exact offsets (`PATCH`, plain ASGI, every few seconds per running job), bytes out to people.

Decided here: the Runner API's form of every outcome. Whether bytes fit is decided by the trace store, whether the job
may still grow by `remuda.cell.dispatch.dispatcher`.

Invariant: `Range` always tells how many bytes are stored, so a runner that lost count finds the right offset.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remuda.cell.http.edge.access import in_project, of_job
from remuda.cell.http.edge.auth import job_token_in
from remuda.cell.http.edge.bodies import Body, first_headers
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import ApiError, JsonBytes, bad_parameter, bad_request, forbidden
from remuda.cell.http.edge.lookup import any_job_in_path, job_in_path
from remuda.cell.http.edge.streaming import Streamed
from remuda.cell.traces.port import Appended
from remuda.cell.values import Job
from remuda.cell.values.people import Level
from remuda.wire.runner_api import fits_content_range, parse_content_range

PATH = re.compile(r"/api/v4/jobs/([0-9]{1,18})/trace")
ROUTE = "/api/v4/jobs/{job_id}/trace"
_BYTES = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)


async def patch_trace(edge: Edge, job_id: int, scope: Scope, receive: Receive, send: Send) -> None:
    """Take in a piece of a trace."""
    sent = first_headers(scope)
    in_query = job_token_in(Request(scope)) if scope["query_string"] else ""
    token = in_query or sent.get(b"job-token", b"").decode("latin-1")
    if not token:
        raise forbidden()
    # The job is read when all bytes are there: its status tells a runner that it was canceled.
    data = await Body(receive).read(edge.settings.trace_piece_limit_bytes)
    job = await edge.dispatch.runner_calls.authenticate(token, job_id, ended=True)
    await edge.managers.note_job_call(job, None, scope["client"][0] if scope.get("client") else "")
    said = sent.get(b"content-range", b"").decode("latin-1")
    start = parse_content_range(said)
    if start is None:
        raise bad_request("Missing header Content-Range, or it is not <start>-<end>")
    if not fits_content_range(said, len(data)):
        raise bad_request(f"Content-Range is {said[:100]}, and {len(data)} bytes came; <end> is the last byte's place")
    appended = await edge.dispatch.runner_calls.append_trace(job, start, data)
    await _answer(edge, job, appended)(scope, receive, send)


def known_job(edge: Edge, job_id: int, scope: Scope) -> Job | None:
    """The job whose log a call adds to, if everything about the call is known; None when something has to be asked."""
    sent = first_headers(scope)
    if scope["query_string"] or b"x-forwarded-for" in sent:
        return None
    job = edge.dispatch.runner_calls.authenticate_from_cache(sent.get(b"job-token", b"").decode("latin-1"), job_id)
    ip = scope["client"][0] if scope.get("client") else ""
    return job if job is not None and edge.managers.is_fresh(job, ip) else None


def take_known(edge: Edge, job: Job, scope: Scope, data: bytes) -> JsonBytes | None:
    """The answer to a piece of which everything is known; None, and nothing is done, when something has to be asked."""
    said = first_headers(scope).get(b"content-range", b"").decode("latin-1")
    start = parse_content_range(said)
    if start is None or len(data) > edge.settings.trace_piece_limit_bytes or not fits_content_range(said, len(data)):
        return None
    appended = edge.dispatch.runner_calls.append_trace_now(job, start, data)
    return None if appended is None else _answer(edge, job, appended)


def _answer(edge: Edge, job: Job, appended: Appended) -> JsonBytes:
    headers = {**job_headers(edge, job), "Range": f"0-{appended.size}"}
    text, status = (b'"202 Accepted"', 202) if appended.taken else (b'"416 Range Not Satisfiable"', 416)
    return JsonBytes(text, status, headers)


def job_headers(edge: Edge, job: Job) -> dict[str, str]:
    """What a runner is told with every answer about its job."""
    return {
        "Job-Status": job.status(),
        "X-GitLab-Trace-Update-Interval": str(edge.settings.trace_interval_seconds),
    }


async def get_trace(edge: Edge, request: Request) -> Response:
    """The log as it stands, or the part of it that `Range` names; nothing when the caller has it (`If-None-Match`)."""
    job, _ = await job_in_path(edge, request)
    size = await _size(edge, job)
    # A log only grows, and loses everything when it is erased: its length tells one state from every other.
    tag = f'"{job.id}-{size}"'
    headers = {"ETag": tag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"}
    if _has_tag(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    asked = _parse_range(request.headers.get("range", ""), size)
    if asked is None or request.headers.get("if-range", tag) != tag:
        return _bytes(edge, job, 0, size, 200, headers)
    start, end = asked
    if start >= end:
        raise ApiError(416, {"message": "416 Range Not Satisfiable"}, Content_Range=f"bytes */{size}")
    return _bytes(edge, job, start, end, 206, {**headers, "Content-Range": f"bytes {start}-{end - 1}/{size}"})


async def _size(edge: Edge, job: Job) -> int:
    """How long the log is; what was erased has none, even if it has not been removed yet."""
    return 0 if job.erased else await edge.traces.size(job.id)


def _has_tag(header: str, tag: str) -> bool:
    """Whether one of the tags in a header is this one."""
    return header.strip() == "*" or tag in (part.strip().removeprefix("W/") for part in header.split(","))


def _parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Where the wanted part begins and ends; None for no range, and for several or odd ones, which may be ignored."""
    found = _BYTES.fullmatch(header.replace(" ", ""))
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return max(size - int(found[2]), 0), size
    start, last = int(found[1]), int(found[2] or size)
    if found[2] and last < start:
        return None
    return start, min(last + 1, size)


async def follow_trace(edge: Edge, request: Request) -> Response:
    """The bytes from `offset` on and how the job stands: what somebody who follows the log asks again and again."""
    text = request.query_params.get("offset", "0")
    if not text.isascii() or not text.isdigit():
        raise bad_parameter("offset is invalid")
    # The state before the size: a job seen as over has its whole log.
    job = await any_job_in_path(edge, request)
    size = await _size(edge, job)
    headers = {"X-Remuda-Job-State": job.state.value, "X-Remuda-Trace-Size": str(size)}
    return _bytes(edge, job, min(int(text[:18]), size), size, 200, headers)


def _bytes(edge: Edge, job: Job, start: int, end: int, status: int, headers: dict[str, str]) -> Response:
    """Exactly the bytes from start to end, though the log may be growing."""
    return Streamed(
        _limit_bytes(edge.traces.read(job.id, start), end - start) if end > start else None,
        status,
        {**headers, "Content-Length": str(end - start)},
        "text/plain; charset=utf-8",
    )


async def _limit_bytes(pieces: AsyncIterator[bytes], left: int) -> AsyncGenerator[bytes, None]:
    async for piece in pieces:
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v4/projects/{id}/jobs/{job_id}/trace",
        get_trace,
        in_project(Level.REPORTER),
        gives=bytes,
        also=(206, 304, 416),
    ),
    Endpoint(
        "GET",
        "/api/remuda/v1/jobs/{job_id}/trace",
        follow_trace,
        of_job(Level.REPORTER),
        query={"offset": int},
        gives=bytes,
    ),
)
