"""Interactive shells, the runner manager's side: a long poll for users' requests, and the two streams of a shell.

A manager, identified by its runner's token and its `system_id`, learns only of shells in jobs that were handed out to
it. All requests come through one long poll that the manager opens, so the cell need not be able to connect to it."""

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import RUNNER
from remuda.cell.http.edge.bodies import MAX_DIGITS
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.lookup import text_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.remuda.shells import STREAM, append_frames, read_frames
from remuda.cell.shells.port import INPUT, OUTPUT, About
from remuda.cell.values import LEGACY
from remuda.model.job import JobId
from remuda.wire.shell import LookRequest, Wanted

LONGEST_REASON = 1000


_SHELL = "/api/remuda/v1/runners/shells/{shell}"
_WHO = {"system_id": str}
routes = Routes()


@routes.post("/api/remuda/v1/runners/wanted", RUNNER, status=200)
async def poll_requests(edge: Edge, request: Request, params: LookRequest) -> Wanted:
    """Wait for a request of a user: open a shell in a job, cancel it, or remove the environment of a failed one."""
    runner = await auth.runner_of(edge, params.token or auth.runner_token_in(request))
    ip = request.client.host if request.client else ""
    await edge.managers.note_call(runner.id, params.system_id, None, ip)
    job_ids = {JobId(job.job_id) for job in params.held if 0 < job.job_id < 10**MAX_DIGITS}
    rows = await edge.store.jobs.load_jobs(job_ids) if job_ids else ()
    manager = (runner.id, params.system_id or LEGACY)
    own_job_ids = {row.id for row in rows if (row.runner_id, row.system_id or LEGACY) == manager}
    return await edge.shells.poll(runner.id, params, own_job_ids=own_job_ids)


@routes.get(f"{_SHELL}/input", RUNNER, query=_WHO | {"offset": int}, gives=bytes)
async def receive(edge: Edge, request: Request) -> Response:
    """Read the input for the command of a shell: frames (messages) from the byte `offset` on."""
    return await read_frames(edge, request, await _find_shell(edge, request), INPUT)


@routes.patch(f"{_SHELL}/output", RUNNER, query=_WHO, **STREAM)
async def send(edge: Edge, request: Request) -> Response:
    """Send output of the command of a shell: append frames (messages) to its output."""
    return await append_frames(edge, request, await _find_shell(edge, request), OUTPUT)


@routes.delete(_SHELL, RUNNER, query=_WHO | {"reason": str})
async def close(edge: Edge, request: Request) -> None:
    """Report that a shell has ended or could not be opened, with the `reason`."""
    reason = request.query_params.get("reason", "")[:LONGEST_REASON]
    edge.shells.close(await _find_shell(edge, request), reason or "it has ended")


async def _find_shell(edge: Edge, request: Request) -> About:
    runner = await auth.runner_of(edge, auth.runner_token_in(request))
    shell, system_id = text_in_path(request, "shell"), request.query_params.get("system_id")
    return edge.shells.of_runner(shell, runner.id, system_id)
