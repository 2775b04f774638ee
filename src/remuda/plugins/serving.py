"""Runs a plugin that is written in Python, of either kind: reserves stdout for the handshake, and serves gRPC calls."""

import asyncio
import os
import shutil
import signal
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

from grpclib import GRPCError
from grpclib.const import Status
from grpclib.server import Server, Stream

SHORT_FOLDER = "/tmp"
LONGEST_PATH_BYTES = 100
CLOSE_SECONDS = 1.0
Service = TypeVar("Service")
Request = TypeVar("Request")
Response = TypeVar("Response")
UnaryMethod = Callable[[Service, Request], Awaitable[Response]]
StreamMethod = Callable[[Service, Stream[Request, Response]], Coroutine[Any, Any, None]]


def unary(
    as_status: Callable[[], AbstractContextManager[None]],
) -> Callable[[UnaryMethod[Service, Request, Response]], StreamMethod[Service, Request, Response]]:
    """Make a decorator for gRPC methods that take a request and return the answer. The decorated method takes a stream,
    as grpclib passes it. `as_status`: returns a context manager that turns errors of the method into a gRPC status."""

    def decorate(method: UnaryMethod[Service, Request, Response]) -> StreamMethod[Service, Request, Response]:
        async def serve(service: Service, stream: Stream[Request, Response]) -> None:
            request = await receive(stream)
            with as_status():
                response = await method(service, request)
            await stream.send_message(response)

        return serve

    return decorate


async def receive(stream: Stream[Request, Any]) -> Request:
    """The first message of a call. Raises GRPCError if there is none."""
    message = await stream.recv_message()
    if message is None:
        raise GRPCError(Status.INVALID_ARGUMENT, "the call has no message")
    return message


@contextmanager
def reserve_stdout() -> Iterator[TextIO]:
    """Yield stdout for the handshake, and redirect all other output of the plugin to stderr, which the host logs.
    SIGINT is ignored: Ctrl-C reaches the host, too, and the host ends its plugins."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w") as stdout:
        os.dup2(2, 1)
        yield stdout


@asynccontextmanager
async def listen(server: Server, sockets: str | None, context: ssl.SSLContext | None = None) -> AsyncIterator[Path]:
    """Serve on a unix socket below the host's folder `sockets` (None: the temporary folder) during the `async with`
    block; yields the socket's path."""
    folder = _socket_folder(sockets or tempfile.gettempdir())
    try:
        path = folder / "socket"
        await server.start(path=str(path), ssl=context)
        yield path
        server.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await server.wait_closed()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _socket_folder(parent: str) -> Path:
    """Create a folder below `parent`, or below /tmp if the path would be too long for a unix socket."""
    folder = Path(tempfile.mkdtemp(prefix="plugin", dir=parent))
    if len(os.fsencode(folder / "socket")) <= LONGEST_PATH_BYTES:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="plugin", dir=SHORT_FOLDER))
