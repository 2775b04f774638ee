"""Shells, the manager's side: what users want of its jobs, and the two streams of a shell.

A manager learns only of shells in jobs that were handed out to it (its runner's token and its `system_id`). One held
call per runner carries all requests, so a manager is reached behind any number of address translations, and costs
nothing while nobody opens a shell.
"""

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import RUNNER
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import json_answer, no_content
from remuda.cell.http.edge.lookup import MAX_DIGITS, text_in_path
from remuda.cell.http.remuda.shells import STREAM, append_frames, read_frames
from remuda.cell.shells.port import INPUT, OUTPUT, About
from remuda.cell.values import LEGACY
from remuda.model.job import JobId
from remuda.wire.shell import LookRequest, Wanted

LONGEST_REASON = 1000


async def poll_requests(edge: Edge, request: Request) -> Response:
    """POST /api/remuda/v1/runners/wanted: wait for requests of users about the manager's jobs."""
    params = await parameters(request, LookRequest, limit_bytes=edge.settings.body_limit_bytes)
    runner = await auth.runner_of(edge, params.token or request.headers.get("runner-token", ""))
    ip = request.client.host if request.client else ""
    await edge.managers.note_call(runner.id, params.system_id, None, ip)
    named = {JobId(job.job_id) for job in params.held if 0 < job.job_id < 10**MAX_DIGITS}
    rows = await edge.store.jobs.load_jobs(named) if named else ()
    manager = (runner.id, params.system_id or LEGACY)
    theirs = {row.id for row in rows if (row.runner_id, row.system_id or LEGACY) == manager}
    return json_answer(await edge.shells.poll(runner.id, params, theirs=theirs))


async def receive(edge: Edge, request: Request) -> Response:
    """GET /api/remuda/v1/runners/shells/:shell/input: read frames for the command from `offset` on."""
    return await read_frames(edge, request, await _shell(edge, request), INPUT)


async def send(edge: Edge, request: Request) -> Response:
    """PATCH /api/remuda/v1/runners/shells/:shell/output: append frames of the command."""
    return await append_frames(edge, request, await _shell(edge, request), OUTPUT)


async def close(edge: Edge, request: Request) -> Response:
    """DELETE /api/remuda/v1/runners/shells/:shell: the shell has ended or could not be opened, for a `reason`."""
    reason = request.query_params.get("reason", "")[:LONGEST_REASON]
    edge.shells.close(await _shell(edge, request), reason or "it has ended")
    return no_content()


async def _shell(edge: Edge, request: Request) -> About:
    runner = await auth.runner_of(edge, request.headers.get("runner-token", ""))
    shell, system_id = text_in_path(request, "shell"), request.query_params.get("system_id")
    return edge.shells.of_runner(shell, runner.id, system_id)


_SHELL = "/api/remuda/v1/runners/shells/{shell}"
_WHO = {"system_id": str}

ENDPOINTS = (
    Endpoint(
        "POST", "/api/remuda/v1/runners/wanted", poll_requests, RUNNER, takes=LookRequest, gives=Wanted, status=200
    ),
    Endpoint("GET", f"{_SHELL}/input", receive, RUNNER, query=_WHO | {"offset": int}, gives=bytes),
    Endpoint("PATCH", f"{_SHELL}/output", send, RUNNER, query=_WHO, **STREAM),
    Endpoint("DELETE", _SHELL, close, RUNNER, query=_WHO | {"reason": str}),
)
