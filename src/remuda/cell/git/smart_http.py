"""Smart HTTP: one request handed to `git http-backend`, bytes streamed both ways, nothing kept in memory.

Decided here: how a request becomes the environment of that program and how its answer is read. Who may fetch or push
is decided in `remuda.cell.http.git.smart_http`, the only caller.

Invariant: the program has ended when `serve` returns, so after a push the refs are what they will be.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress

import msgspec

from remuda.cell.errors import StoreError
from remuda.cell.git.repositories import GitRepos, end_git, kill_git, spawn_git, stop_git
from remuda.cell.git.request_limits import limit_lists, unpack

DEADLINE_SECONDS = 3600
PIECE_BYTES = 65536
_MAX_HEAD_BYTES = 16384
_KEPT_STDERR_BYTES = 4096

Start = Callable[[int, list[tuple[bytes, bytes]]], Awaitable[None]]
Send = Callable[[bytes], Awaitable[None]]


class GitCall(msgspec.Struct, frozen=True, kw_only=True):
    """What of a request git wants to know."""

    method: str
    service: str
    """info/refs, git-upload-pack or git-receive-pack."""
    query: str = ""
    content_type: str = ""
    content_encoding: str = ""
    protocol: str = ""
    user: str = ""
    hook: Mapping[str, str] = {}
    """What git's hooks are told beside."""

    def environment(self, path: str) -> Mapping[str, str]:
        """The request as a CGI program reads it, unpacked.

        Without its length: git reads to the end then. With it, git http-backend waits for ever, at full speed, for the
        rest of a body that breaks off.
        """
        given = {
            "GIT_PROTOCOL": self.protocol,
        }
        return {
            "GATEWAY_INTERFACE": "CGI/1.1",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REQUEST_METHOD": self.method,
            "GIT_PROJECT_ROOT": path,
            "PATH_INFO": f"/{self.service}",
            "QUERY_STRING": self.query,
            "CONTENT_TYPE": self.content_type,
            "REMOTE_USER": self.user,
            "GIT_HTTP_EXPORT_ALL": "1",
            **self.hook,
            **{name: value for name, value in given.items() if value},
        }


class GitFailedError(StoreError):
    """git http-backend gave no answer."""


async def serve(
    repos: GitRepos,
    repo: str,
    call: GitCall,
    body: AsyncIterator[bytes],
    *,
    start: Start,
    send: Send,
    abandoned: Callable[[], Awaitable[None]] | None = None,
) -> str:
    """Run one request; the tail of what git said on stderr. `abandoned` returns when nobody reads the answer."""
    plain = unpack(body) if call.content_encoding in ("gzip", "x-gzip") else body
    is_push = call.service == "git-receive-pack"
    if is_push:
        plain = limit_lists(plain)
    environment = {**repos.environment, **call.environment(str(repos.path(repo)))}
    process = await spawn_git("http-backend", environment=environment, with_input=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
            said = group.create_task(_tail(process.stderr), name="git stderr")
            feeding = group.create_task(_feed(process, body, plain, abandoned), name="git stdin")
            status, headers = await _head(process.stdout)
            await start(status, headers)
            while piece := await process.stdout.read(PIECE_BYTES):
                await send(piece)
            await process.wait()
            feeding.cancel()
        return said.result()
    finally:
        # A push that breaks off must not leave the objects that it has brought so far.
        await (stop_git(process) if is_push else end_git(process))


async def _feed(
    process: asyncio.subprocess.Process,
    body: AsyncIterator[bytes],
    plain: AsyncIterator[bytes],
    abandoned: Callable[[], Awaitable[None]] | None,
) -> None:
    """Pass on what `plain` makes of the body."""
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        async for piece in plain:
            process.stdin.write(piece)
            await process.stdin.drain()
    process.stdin.close()
    # A program that has given up reads no more, but the client must get rid of its request to read the answer.
    async for _ in body:
        pass
    if abandoned is not None:
        await abandoned()
        kill_git(process)


async def _tail(stream: asyncio.StreamReader) -> str:
    kept = b""
    while piece := await stream.read(PIECE_BYTES):
        kept = (kept + piece)[-_KEPT_STDERR_BYTES:]
    return kept.decode(errors="replace").strip()


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
