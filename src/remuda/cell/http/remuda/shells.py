"""Interactive shells, the user's side: open one in a job, send and read frames, close it; release a job on hold.

Frames (`remuda.wire.shell`) are the messages of a shell: stdin, stdout and events. The cell does not parse them, and
offsets count their bytes. A job on hold is a failed job whose environment is kept for debugging; to release it removes
the environment. Only the user who opened a shell may use it, and every call checks that they are still a maintainer of
the job's project, because a shell sees the job's secrets. Developers may release a job."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge.access import of_job
from remuda.cell.http.edge.admission import Caller, caller_of
from remuda.cell.http.edge.bodies import Body, number_in_query
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError, JsonBytes, bad_parameter, bad_request
from remuda.cell.http.edge.lookup import text_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.shells.port import INPUT, OUTPUT, About
from remuda.cell.shells.shells import PIECE_BYTES
from remuda.cell.values import Job
from remuda.cell.values.people import Level
from remuda.wire.runner_api import fits_content_range, parse_content_range
from remuda.wire.shell import WantedShell

MOST_WORDS, MOST_CHARACTERS, LONGEST_SIDE = 1000, 32 * 1024, 9999


_JOB = "/api/remuda/v1/jobs/{job_id}"
_SHELL = f"{_JOB}/shells/{{shell}}"
STREAM: dict[str, Any] = {"takes": bytes, "gives": str, "status": 202, "also": (416,), "headers": ("Content-Range",)}
routes = Routes()


class OpenShell(msgspec.Struct, kw_only=True):
    command: list[str] = []
    terminal: bool = True
    columns: int = 80
    rows: int = 24
    term: str = ""


class ShellShape(Shape, kw_only=True):
    id: str
    job_id: int
    state: str
    reason: str
    connected: bool


@routes.post(f"{_JOB}/shells", of_job(Level.MAINTAINER), also=(409,))
async def open_shell(edge: Edge, caller: Caller, job: Job, params: OpenShell) -> ShellShape:
    """Open an interactive shell, or run a command, in the environment of a job."""
    if len(params.command) > MOST_WORDS or sum(map(len, params.command)) > MOST_CHARACTERS:
        raise bad_parameter(f"command may have at most {MOST_WORDS} words and {MOST_CHARACTERS} characters")
    if any("\0" in word for word in (*params.command, params.term)) or len(params.term) > 100:
        raise bad_parameter("command or term is invalid: it has a NUL character, or term has more than 100 characters")
    if not (0 < params.columns <= LONGEST_SIDE and 0 < params.rows <= LONGEST_SIDE):
        raise bad_parameter(f"columns and rows must be numbers from 1 to {LONGEST_SIDE}")
    wish = WantedShell(
        id="",
        job_id=job.id,
        command=tuple(params.command),
        terminal=params.terminal,
        columns=params.columns,
        rows=params.rows,
        term=params.term,
    )
    about = edge.shells.open(job, user_id=caller.user.id, wish=wish)
    return _shape(edge, about, connected=edge.shells.is_connected(job))


@routes.get(_SHELL, of_job(Level.MAINTAINER))
async def show(edge: Edge, request: Request, job: Job) -> ShellShape:
    """Show the state of a shell, and why it ended."""
    return _shape(edge, _find_own(edge, request), connected=edge.shells.is_connected(job))


@routes.patch(f"{_SHELL}/input", of_job(Level.MAINTAINER), **STREAM)
async def send(edge: Edge, request: Request) -> Response:
    """Send input to the command of a shell: append frames (messages) to its input."""
    return await append_frames(edge, request, _find_own(edge, request), INPUT)


@routes.get(f"{_SHELL}/output", of_job(Level.MAINTAINER), query={"offset": int}, gives=bytes)
async def receive(edge: Edge, request: Request) -> Response:
    """Read the output of the command of a shell: frames (messages) from the byte `offset` on."""
    return await read_frames(edge, request, _find_own(edge, request), OUTPUT)


@routes.delete(_SHELL, of_job(Level.MAINTAINER))
async def close(edge: Edge, request: Request) -> None:
    """Close a shell."""
    edge.shells.close(_find_own(edge, request), "it was closed by the user who opened it")


@routes.post(f"{_JOB}/release", of_job(Level.DEVELOPER), status=202, also=(409,))
async def release(edge: Edge, job: Job) -> dict[str, int]:
    """Remove the environment of a failed job, which was kept for debugging."""
    edge.shells.release(job.id)
    return {"id": job.id}


async def append_frames(edge: Edge, request: Request, about: About, stream: str) -> Response:
    """Append the body to the shell's `stream`, INPUT or OUTPUT, at the offset in Content-Range; 202 if stored. 416 if
    it leaves a gap or differs from stored bytes, the shell has ended, or the stream's reader is too far behind."""
    data = await Body(request.receive).read(PIECE_BYTES)
    content_range = request.headers.get("content-range", "")
    start = parse_content_range(content_range)
    if start is None or not fits_content_range(content_range, len(data)):
        raise bad_request("Missing header Content-Range, or it is not <start>-<end> of the bytes in the body")
    appended = await edge.shells.append(about, stream, start, data)
    headers = {"Range": f"0-{appended.size}", "X-Remuda-Shell-State": edge.shells.state(about)[0]}
    if not appended.taken:
        raise ApiError(416, {"message": "416 Range Not Satisfiable"}, **headers)
    return JsonBytes(b'"202 Accepted"', 202, headers)


async def read_frames(edge: Edge, request: Request, about: About, stream: str) -> Response:
    """Response with the bytes of the shell's `stream`, INPUT or OUTPUT, from `offset` in the query on. If there are
    none, waits up to HOLD_SECONDS for some or for the shell's end; empty if none come."""
    frames = await edge.shells.read(about, stream, number_in_query(request, "offset") or 0)
    headers = {"X-Remuda-Shell-State": frames.state, "Cache-Control": "no-store"}
    return Response(frames.data, media_type="application/octet-stream", headers=headers)


def _find_own(edge: Edge, request: Request) -> About:
    number = request.path_params["job_id"]
    return edge.shells.of_user(text_in_path(request, "shell"), int(number), caller_of(request).user.id)


def _shape(edge: Edge, about: About, *, connected: bool) -> ShellShape:
    state, reason = edge.shells.state(about)
    return ShellShape(id=about.id, job_id=about.job_id, state=state, reason=reason, connected=connected)
