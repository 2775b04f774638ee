"""The HTTP server of a cell: uvicorn with the cell's own connection class, and the listening socket."""

import asyncio
import asyncio.sslproto
import contextlib
import errno
import itertools
import logging
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

from msgspec.structs import replace
from uvicorn.config import Config
from uvicorn.server import Server

from remuda.cell.errors import CellError
from remuda.cell.http.edge.app import CellApp
from remuda.cell.http.edge.connections import BACKLOG, Connection, connections_within
from remuda.cell.settings import CellSettings
from remuda.cell.tls import ServerCertificate
from remuda.lib.descriptors import raise_limit
from remuda.lib.waiting import wait_for_event
from remuda.telemetry.logs import logger

KEEP_ALIVE_SECONDS = 120
"""Longer than runners keep an idle connection (90 s), so that the server does not close it first."""
HANDSHAKE_SECONDS = 10.0
"""How long a client may take for the TLS handshake."""
CLOSE_SECONDS = 60.0
"""How long a client may take to read the rest of an answer, and to confirm the end of TLS."""
TLS_BUFFER_BYTES = 32 * 1024
"""How much asyncio reads from a TLS connection at once. Each connection has a buffer of this size for as long as it is
open: with asyncio's default of 256 KiB, an open connection takes 286 KiB of memory."""
_UNCONFIRMED_SECONDS = 0.5
"""How often a stopping server ends TLS connections whose client has everything and does not confirm the end."""
_LOOK_SECONDS = 0.01
"""How often a stopping server looks whether its last requests are done."""

_log = logger("cell")


class CellServer(Server):
    """A uvicorn server without signal handlers, because the cell's own process handles signals. Call `leave` to stop
    it. `main_loop` and `shutdown` are copies of uvicorn's with shorter pauses: uvicorn notices a stop only at its next
    tick, and always sleeps a tenth of a second before it ends."""

    def __init__(
        self,
        app: CellApp,
        settings: CellSettings,
        on_started: Callable[[], None],
        certificate: ServerCertificate | None = None,
    ) -> None:
        connections = replace(
            connections_within(raise_limit()),
            fast_answer=app.append_trace_now,
            reader_seconds=settings.reader_silent_seconds,
        )
        super().__init__(
            Config(
                app,
                http=cast("type[asyncio.Protocol]", partial(Connection, shared=connections)),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                forwarded_allow_ips=["127.0.0.1", "::1", *settings.trusted_proxies]
                if settings.trusted_proxies
                else None,
                backlog=connections.backlog,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=settings.stop_seconds,
            )
        )
        self._on_started = on_started
        self._certificate = certificate
        if certificate is not None:
            # For the whole process, and only in a cell with TLS: there is no parameter for it.
            asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
        self._leaving = asyncio.Event()
        uvicorn_log = logging.getLogger("uvicorn.error")
        uvicorn_log.handlers = [_Forward()]
        uvicorn_log.propagate = False
        uvicorn_log.setLevel(logging.WARNING)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. Not with uvicorn's `startup`, which cannot limit how long a TLS handshake takes."""
        loop = asyncio.get_running_loop()
        self.servers = []
        for listener in sockets or ():
            server = await loop.create_server(
                self._new_connection,
                sock=listener,
                backlog=self.config.backlog,
            )
            self.servers.append(server)
            # asyncio has one number for two things: the kernel's queue, and how many connections it accepts in a row.
            listener.listen(BACKLOG)
        self.started = True
        self._on_started()

    def _new_connection(self) -> asyncio.Protocol:
        create = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        connection = create(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        if self._certificate is None:
            return connection
        # As asyncio does it, but with the context of this moment: `create_server` takes one for all connections.
        encrypt = cast("Callable[..., asyncio.Protocol]", asyncio.sslproto.SSLProtocol)
        return encrypt(
            asyncio.get_running_loop(),
            connection,
            self._certificate.context,
            waiter=None,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=CLOSE_SECONDS,
        )

    def leave(self) -> None:
        """Accept no more connections; `serve` ends when the running requests are done, at most `stop_seconds` later."""
        self.should_exit = True
        self._leaving.set()

    async def main_loop(self) -> None:
        for counter in itertools.count():
            if await self.on_tick(counter):
                return
            await wait_for_event(self._leaving, within_seconds=0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        asyncio.get_running_loop().call_later(_UNCONFIRMED_SECONDS, self._end_unconfirmed)
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - no event for it
                    await asyncio.sleep(_LOOK_SECONDS)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel("the cell stops")

    def _end_unconfirmed(self) -> None:
        for connection in list(self.server_state.connections):
            transport = connection.transport
            if transport.is_closing() and not transport.get_write_buffer_size():
                transport.abort()
        if self.server_state.connections:
            asyncio.get_running_loop().call_later(_UNCONFIRMED_SECONDS, self._end_unconfirmed)


class _Forward(logging.Handler):
    """Passes uvicorn's warnings and errors to the cell's log."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, asyncio.CancelledError):
            _log.warning("canceled an HTTP request that was still running at the end of the stop timeout")
        else:
            _log.warning(
                "HTTP server reported a problem; the cell continues to serve",
                message=record.getMessage().strip(),
                error=repr(error) if error else None,
            )


def bind(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket. Raises CellError with the reason and advice if that is impossible."""
    where = f"{host or '*'}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise CellError(f"cannot listen on {where}: {error.strerror}; give an address of this machine") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        other = "give another --listen HOST:PORT"
        advice = {
            errno.EADDRINUSE: f"another process listens there; stop it, or {other} (0: any free port)",
            errno.EACCES: f"ports below 1024 need privileges; {other}",
            errno.EADDRNOTAVAIL: "this machine has no such address; give one that it has",
        }.get(error.errno or 0, error.strerror or str(error))
        raise CellError(f"cannot listen on {where}: {advice}") from None
    return listener
