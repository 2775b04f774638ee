"""Verify and remove runners, and `PUT /jobs/:id` (plain ASGI), by which a runner reports the state of a job.
`check_runner` has GitLab's rules for the attributes of a runner."""

import re
from functools import partial

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remuda.cell.core.payload.redaction import without_secrets
from remuda.cell.dispatch.payload_view import load_secrets
from remuda.cell.dispatch.runner_calls import Updated
from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import RUNNER
from remuda.cell.http.edge.bodies import MAX_DIGITS, Body, decode_fast, first_headers
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import (
    ApiError,
    JsonBytes,
    bad_field,
    bad_parameter,
    not_found,
)
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.runner.trace import job_headers
from remuda.cell.pipelines.coverage import measure_coverage, read_coverage
from remuda.cell.values import MAX_POLL_HOLD_SECONDS, MAX_PRIORITY, Job, Runner
from remuda.lib.clock import rfc3339
from remuda.model.job import JobState
from remuda.telemetry.logs import logger
from remuda.wire.runner_api import (
    RunnerCredentials,
    UpdateJob,
    VerifyRunner,
)

UPDATE_ROUTE = "/api/v4/jobs/{job_id}"
UPDATE_PATH = re.compile(r"/api/v4/jobs/([^/]+)")
MAX_TAGS = 50
MAX_DESCRIPTION = 1024
MAX_TAG = 255
MIN_TIMEOUT_SECONDS = 600
MAX_TEXT = 1000
"""Characters of a runner's message about a job, and of each of its warnings."""
MAX_WARNINGS = 20

_log = logger("cell")
_update_decoder = msgspec.json.Decoder(UpdateJob)

_ASSIGNED = frozenset({JobState.LEASED, JobState.RUNNING})


routes = Routes()


def check_runner(runner: Runner) -> Runner:
    """Return the runner unchanged. Raises ApiError 400 if its attributes break GitLab's rules."""
    if len(runner.tags) > MAX_TAGS:
        raise bad_field("tags_list", f"Too many tags specified. Please limit the number of tags to {MAX_TAGS}")
    if any(len(tag) > MAX_TAG for tag in runner.tags):
        raise bad_field("tags_list", f"a tag may have at most {MAX_TAG} characters")
    if not runner.tags and not runner.run_untagged:
        raise bad_field("tags_list", "can not be empty when runner is not allowed to pick untagged jobs")
    for field, text in (("description", runner.description), ("maintenance_note", runner.maintenance_note or "")):
        if len(text) > MAX_DESCRIPTION:
            raise bad_field(field, f"is too long (maximum is {MAX_DESCRIPTION} characters)")
    if abs(runner.priority) > MAX_PRIORITY:
        raise bad_field("priority", f"must be a number from {-MAX_PRIORITY} to {MAX_PRIORITY}")
    if not 0 <= (runner.poll_hold_seconds or 0) <= MAX_POLL_HOLD_SECONDS:
        raise bad_field("poll_hold_seconds", f"must be from 0 to {MAX_POLL_HOLD_SECONDS}, or null for the default")
    if runner.maximum_timeout is not None and runner.maximum_timeout < MIN_TIMEOUT_SECONDS:
        raise bad_field("maximum_timeout", f"needs to be at least 10 minutes ({MIN_TIMEOUT_SECONDS} s)")
    return runner


def is_protected(access_level: str | None) -> bool:
    """True for `ref_protected`: the runner gets only jobs of protected refs. ApiError 400 for an unknown value."""
    if access_level not in (None, "", "not_protected", "ref_protected"):
        raise bad_parameter("access_level does not have a valid value")
    return access_level == "ref_protected"


def credentials(runner: Runner, token: str) -> RunnerCredentials:
    """The response with a runner's id, its token and when that expires, as in GitLab's Runner API."""
    expires_at = None if runner.token_expires_at is None else rfc3339(runner.token_expires_at)
    return RunnerCredentials(id=runner.id, token=token, token_expires_at=expires_at)


@routes.post("/api/v4/runners/verify", RUNNER, status=200)
async def verify(edge: Edge, request: Request, params: VerifyRunner) -> RunnerCredentials:
    """Check a runner's token, and record that its manager has called."""
    token = params.token or auth.runner_token_in(request)
    runner = await auth.runner_of(edge, token)
    ip = request.client.host if request.client else ""
    await edge.managers.note_call(runner.id, params.system_id, params.info, ip)
    return credentials(runner, token)


@routes.delete("/api/v4/runners", RUNNER)
async def remove(edge: Edge, request: Request, params: VerifyRunner) -> None:
    """Remove the runner whose token is in the body or header."""
    runner = await auth.runner_of(edge, params.token or auth.runner_token_in(request))
    request.state.runner_id = runner.id
    await edge.store.runners.remove_runner(runner.id)


@routes.delete("/api/v4/runners/managers", RUNNER)
async def remove_manager(edge: Edge, request: Request, params: VerifyRunner) -> None:
    """Remove one manager of a runner, a process that uses its token."""
    runner = await auth.runner_of(edge, params.token or auth.runner_token_in(request))
    request.state.runner_id = runner.id
    if not params.system_id:
        raise bad_parameter("system_id is missing")
    if not await edge.managers.remove(runner.id, params.system_id):
        raise not_found("Runner manager")


@routes.get("/api/v4/runners/router/discovery", RUNNER, gives=dict[str, str], also=(501,))
async def discover_router(edge: Edge, request: Request) -> Response:
    """Answer 501: a cell has no job router, runners ask it for jobs directly."""
    await auth.runner_of(edge, auth.runner_token_in(request))
    raise ApiError(501, {"message": "501 Not Implemented - this cell has no job router; ask for jobs directly"})


def _compare_checksums(edge: Edge, params: UpdateJob, updated: Updated) -> None:
    """Compare the checksum of a finished job's log that the runner reported with that of the stored log. A difference
    is counted in a metric and logged; the job keeps its result."""
    reported = params.output.checksum if params.output else None
    stored = updated.job.trace_checksum
    if updated.code == 200 and reported and stored and reported != stored:
        edge.metrics.trace_mismatches.inc()
        _log.warning(
            "checksum of the stored log differs from the runner's; the job keeps its result",
            job=updated.job.id,
            reported=reported,
            stored=stored,
        )


async def _clean_texts(edge: Edge, job: Job, params: UpdateJob) -> UpdateJob:
    """Return the message with its texts for people on one line each, without secrets, and not too long."""
    secrets = await load_secrets(edge.store, job)

    def clean(text: str) -> str:
        words: str = without_secrets(" ".join(text.split()), secrets)
        return words[:MAX_TEXT]

    warnings = [clean(text) for text in params.remuda_warnings[:MAX_WARNINGS]]
    return replace(params, remuda_message=clean(params.remuda_message), remuda_warnings=warnings)


async def update_job(edge: Edge, job_id: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Report the state of a job, by its runner."""
    if not job_id.isdecimal() or len(job_id) > MAX_DIGITS:
        raise bad_parameter("job_id is invalid")
    headers = first_headers(scope)
    raw = await Body(receive).read(edge.settings.body_limit_bytes)
    params = decode_fast(raw, scope, headers.get(b"content-type", b""), _update_decoder, UpdateJob)
    token = params.token or headers.get(b"job-token", b"").decode("latin-1")
    if not token:
        raise bad_parameter("token is missing")
    job = await edge.dispatch.runner_calls.authenticate(token, int(job_id), ended=True)
    if params.remuda_message or params.remuda_warnings:
        params = await _clean_texts(edge, job, params)
    await edge.managers.note_job_call(job, params.info, scope["client"][0] if scope.get("client") else "")
    # A job with `release` succeeds only if its release was created, so the release comes first.
    is_end = params.state in ("success", "failed") and job.state in _ASSIGNED and not job.ends_alone
    spec = await edge.store.jobs.load_spec(job.id) if is_end else None
    refused = await edge.releases.create_for_job(job, spec) if is_end and params.state == "success" else None
    updated = await edge.dispatch.runner_calls.update_job(
        job,
        params,
        refused=refused,
        read_coverage=partial(read_coverage, edge.traces, job, spec.coverage) if spec and spec.coverage else None,
    )
    _compare_checksums(edge, params, updated)
    await measure_coverage(edge.store, edge.traces, updated.job, spec)
    answer = JsonBytes(b"%d" % updated.code, updated.code, job_headers(edge, updated.job))
    await answer(scope, receive, send)
