"""Job logs (traces): runners append at exact offsets (`PATCH`, plain ASGI, every few seconds per job), people read.
Invariant: `Range` in the answer is the number of bytes stored: the offset at which the runner continues."""

import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remuda.cell.http.edge.access import in_project, of_job
from remuda.cell.http.edge.admission import ANONYMOUS, caller_of, optional_caller
from remuda.cell.http.edge.auth import job_token_in
from remuda.cell.http.edge.bodies import Body, first_headers, flag_in_query, number_in_query
from remuda.cell.http.edge.byte_ranges import Content, answer_content, limit_bytes
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import JsonBytes, bad_parameter, bad_request, forbidden
from remuda.cell.http.edge.lookup import any_job_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.edge.streaming import Streamed
from remuda.cell.traces.port import Appended
from remuda.cell.values import Job, Project
from remuda.cell.values.people import Level
from remuda.model.job import FINAL
from remuda.wire.runner_api import fits_content_range, parse_content_range

PATH = re.compile(r"/api/v4/jobs/([0-9]{1,18})/trace")
ROUTE = "/api/v4/jobs/{job_id}/trace"
_IS_TRACED = {b"": False, b"debug_trace=false": False, b"debug_trace=true": True}
"""The queries that runners send, and whether they say that the scripts print their commands."""
_FOLLOW = {"offset": int, "hold_seconds": int}
_MEDIA = "text/plain; charset=utf-8"


routes = Routes()


async def patch_trace(edge: Edge, job_id: int, scope: Scope, receive: Receive, send: Send) -> None:
    """Append bytes to the log (trace) of a job."""
    headers = first_headers(scope)
    in_query = job_token_in(Request(scope)) if scope["query_string"] else ""
    token = in_query or headers.get(b"job-token", b"").decode("latin-1")
    if not token:
        raise forbidden()
    # The job is read after the body, so that its status tells the runner of a cancel meanwhile.
    data = await Body(receive).read(edge.settings.trace_piece_limit_bytes)
    job = await edge.dispatch.runner_calls.authenticate(token, job_id, ended=True)
    await edge.managers.note_job_call(job, None, scope["client"][0] if scope.get("client") else "")
    content_range = headers.get(b"content-range", b"").decode("latin-1")
    start = parse_content_range(content_range)
    if start is None:
        raise bad_request("Missing header Content-Range, or it is not <start>-<end>")
    if not fits_content_range(content_range, len(data)):
        raise bad_request(
            f"Content-Range is {content_range[:100]}, but the body has {len(data)} bytes; "
            "<end> must be the offset of its last byte"
        )
    is_traced = scope["query_string"] != b"" and flag_in_query(Request(scope), "debug_trace")
    appended = await edge.dispatch.runner_calls.append_trace(job, start, data, is_traced=is_traced)
    edge.trace_readers.note(job.id)
    await _answer(edge, job, appended)(scope, receive, send)


def find_cached_job(edge: Edge, job_id: int, scope: Scope) -> Job | None:
    """The job to whose log a request appends, if the cache is enough to answer. None if token or job is not cached, the
    call of the manager or a new `debug_trace` must be stored, or the request has an unusual query or comes through a
    proxy."""
    headers = first_headers(scope)
    is_traced = _IS_TRACED.get(scope["query_string"])
    if is_traced is None or b"x-forwarded-for" in headers:
        return None
    job = edge.dispatch.runner_calls.authenticate_from_cache(headers.get(b"job-token", b"").decode("latin-1"), job_id)
    if job is None or (is_traced and not job.is_traced):
        return None
    ip = scope["client"][0] if scope.get("client") else ""
    return job if edge.managers.is_fresh(job, ip) else None


def append_now(edge: Edge, job: Job, scope: Scope, data: bytes) -> JsonBytes | None:
    """Append to a job's log without waiting and return the answer; None if only the ordinary handler can answer."""
    content_range = first_headers(scope).get(b"content-range", b"").decode("latin-1")
    start = parse_content_range(content_range)
    if (
        start is None
        or len(data) > edge.settings.trace_piece_limit_bytes
        or not fits_content_range(content_range, len(data))
    ):
        return None
    appended = edge.dispatch.runner_calls.append_trace_now(job, start, data)
    if appended is None:
        return None
    edge.trace_readers.note(job.id)
    return _answer(edge, job, appended)


def _answer(edge: Edge, job: Job, appended: Appended) -> JsonBytes:
    headers = {**job_headers(edge, job), "Range": f"0-{appended.size}"}
    text, status = (b'"202 Accepted"', 202) if appended.taken else (b'"416 Range Not Satisfiable"', 416)
    return JsonBytes(text, status, headers)


def job_headers(edge: Edge, job: Job) -> dict[str, str]:
    """Headers of answers to a runner: the status of its job, and how many seconds to wait between trace pieces."""
    return {
        "Job-Status": job.status(),
        "X-GitLab-Trace-Update-Interval": str(edge.settings.trace_interval_seconds),
    }


@routes.get("/api/v4/projects/{id}/jobs/{job_id}/trace", in_project(Level.REPORTER), gives=bytes, also=(206, 304, 416))
async def get_trace(edge: Edge, request: Request, job: Job, project: Project) -> Response:
    """Return the log of a job, or its part in `Range`; 304 if `If-None-Match` has its ETag."""
    _check_readable(request, job, project)
    size = await _size(edge, job)
    content = Content(
        read=lambda start: edge.traces.read(job.id, start),
        size=size,
        # A log only grows until it is erased, so its length identifies its content.
        tag=f'"{job.id}-{size}"',
        media_type=_MEDIA,
        headers={"Cache-Control": "private, no-cache"},
    )
    return answer_content(request.headers, content)


def _check_readable(request: Request, job: Job, project: Project | None) -> None:
    """Answer 403 if the scripts of the job print their commands, and the caller is no developer of the project."""
    if job.is_traced and (project is None or (caller_of(request).level_in(project) or 0) < Level.DEVELOPER):
        raise forbidden(
            "the job ran with CI_DEBUG_TRACE, so its log may show secrets: only developers of the project may read it"
        )


async def _size(edge: Edge, job: Job) -> int:
    """The length of a job's log in bytes; 0 if the log was erased, even if its file is not removed yet."""
    return 0 if job.erased else await edge.traces.size(job.id)


@routes.get("/api/remuda/v1/jobs/{job_id}/trace", of_job(Level.REPORTER), query=_FOLLOW, gives=bytes)
async def follow_trace(edge: Edge, request: Request) -> Response:
    """Return the log of a job from the byte `offset` on, and the job's state in a header.

    If there are no such bytes yet, wait up to `hold_seconds` for some, or for another state of the job."""
    text = request.query_params.get("offset", "0")
    if not text.isascii() or not text.isdigit():
        raise bad_parameter("offset is invalid")
    hold_seconds = number_in_query(request, "hold_seconds")
    # There are only so many held reads: none for people who are not signed in.
    if hold_seconds and optional_caller(request) is not ANONYMOUS:
        await _wait_for_more(edge, request, int(text[:18]), hold_seconds)
    # The state is read before the size, so a job in a final state has its whole log.
    job = await any_job_in_path(edge, request)
    if job.is_traced:
        _check_readable(request, job, await edge.store.projects.load_project(job.project_id))
    size = await _size(edge, job)
    headers = {"X-Remuda-Job-State": job.state.value, "X-Remuda-Trace-Size": str(size)}
    start = min(int(text[:18]), size)
    # No more than that, even if the log grows meanwhile: then the job's state in the header would be too old.
    pieces = limit_bytes(edge.traces.read(job.id, start), size - start) if size > start else None
    return Streamed(pieces, 200, {**headers, "Content-Length": str(size - start)}, _MEDIA)


async def _wait_for_more(edge: Edge, request: Request, offset: int, seconds: float) -> None:
    """Wait until the job has ended, or its log is longer than `offset`, or shorter: it was erased or begins again."""
    job = await any_job_in_path(edge, request)

    async def is_ready() -> bool:
        now = await any_job_in_path(edge, request)
        return now.state in FINAL or await _size(edge, now) != offset

    size = (lambda: edge.traces.size(job.id)) if edge.settings.is_shared else None
    await edge.trace_readers.wait(job.id, seconds, is_ready=is_ready, size=size, clock=edge.clock)
