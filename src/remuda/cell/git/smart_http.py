"""Serves git's smart HTTP protocol: passes one request to `git http-backend` and streams its answer back.

Invariant: git has ended when `serve` returns, so no ref is moved after that."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from remuda.cell.errors import StoreError
from remuda.cell.git.port import GitClient, GitRequest
from remuda.cell.git.program import GitProgram, end_git, kill_git, stop_git
from remuda.cell.git.push_hook import LOCKED_PATHS, hook_variables
from remuda.cell.git.request_limits import limit_lists, unpack

DEADLINE_SECONDS = 3600
PIECE_BYTES = 65536
_MAX_HEAD_BYTES = 16384
_STDERR_BYTES = 4096


def cgi_variables(request: GitRequest, path: str) -> dict[str, str]:
    """Return the CGI variables that describe the request to `git http-backend`. `path` is the repository's folder.
    CONTENT_LENGTH is left out, so that git reads the body to its end: with a length, git http-backend loops at 100 %
    CPU if the body is cut off."""
    variables = {
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REQUEST_METHOD": request.method,
        "GIT_PROJECT_ROOT": path,
        "PATH_INFO": f"/{request.service}",
        "QUERY_STRING": request.query,
        "CONTENT_TYPE": request.content_type,
        "REMOTE_USER": request.user,
        "GIT_HTTP_EXPORT_ALL": "1",
    }
    if request.protocol:
        variables["GIT_PROTOCOL"] = request.protocol
    return variables | (hook_variables(request.rules) if request.rules else {})


class GitFailedError(StoreError):
    """git http-backend exited before it sent a complete response header."""


async def serve(git: GitProgram, repo: str, request: GitRequest, client: GitClient) -> str:
    plain = unpack(client.body) if request.content_encoding in ("gzip", "x-gzip") else client.body
    is_push = request.service == "git-receive-pack"
    if is_push:
        plain = limit_lists(plain)
    folder = git.path(repo)
    with _list_locked_paths(request, folder) as locked:
        variables = cgi_variables(request, str(folder)) | locked
        return await _run(git, variables, client, plain, is_push=is_push)


@contextmanager
def _list_locked_paths(request: GitRequest, folder: Path) -> Iterator[dict[str, str]]:
    """Context manager: write the locked paths for the hook to a file in the repository, because a variable might be too
    short for them. Yields the variable with the path of the file."""
    paths = request.rules.locked_paths if request.rules and request.service == "git-receive-pack" else ()
    if not paths:
        yield {LOCKED_PATHS: ""}
        return
    with NamedTemporaryFile(dir=folder, prefix="locks-") as file:
        file.write(b"".join(path.encode() + b"\0" for path in paths))
        file.flush()
        yield {LOCKED_PATHS: file.name}


async def _run(
    git: GitProgram, variables: dict[str, str], client: GitClient, plain: AsyncIterator[bytes], *, is_push: bool
) -> str:
    process = await git.start("http-backend", environment=variables, with_input=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
            stderr = group.create_task(_tail(process.stderr), name="git stderr")
            feed = group.create_task(_feed(process, client, plain), name="git stdin")
            status, headers = await _head(process.stdout)
            await client.start(status, headers)
            while piece := await process.stdout.read(PIECE_BYTES):
                await client.send(piece)
            await process.wait()
            feed.cancel()
        return stderr.result()
    finally:
        # A push that breaks off must not leave the objects that it has sent so far.
        await (stop_git(process) if is_push else end_git(process))


async def _feed(process: asyncio.subprocess.Process, client: GitClient, plain: AsyncIterator[bytes]) -> None:
    """Write the body (`plain`) to git. If git stops reading early, drop the rest, because the client must send all
    before it reads the answer. If the client of a fetch disconnects after that, kill git."""
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        async for piece in plain:
            process.stdin.write(piece)
            await process.stdin.drain()
    process.stdin.close()
    # git may stop reading early, but the client reads the answer only after it has sent its whole request.
    async for _ in client.body:
        pass
    if client.wait_hang_up is not None:
        await client.wait_hang_up()
        kill_git(process)


async def _tail(stream: asyncio.StreamReader) -> str:
    tail = b""
    while piece := await stream.read(PIECE_BYTES):
        tail = (tail + piece)[-_STDERR_BYTES:]
    return tail.decode(errors="replace").strip()


async def _head(stream: asyncio.StreamReader) -> tuple[int, list[tuple[bytes, bytes]]]:
    status = 200
    headers: list[tuple[bytes, bytes]] = []
    size = 0
    while line := await stream.readline():
        size += len(line)
        if not line.strip() or size > _MAX_HEAD_BYTES:
            return status, headers
        name, _, value = line.partition(b":")
        if name.lower() == b"status":
            status = int(value.split()[0])
        else:
            headers.append((name.strip().lower(), value.strip()))
    raise GitFailedError("git http-backend ended without an answer")
