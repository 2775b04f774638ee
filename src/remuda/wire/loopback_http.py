"""A minimal HTTP client for servers on this machine: no TLS, no proxy, no redirects, no cookies.

aiohttp has all of these, and its import takes longer than a short job. Idle connections are reused, but only for less
time than servers keep them open. Every failure is an OSError; an invalid address or header is a ValueError."""

import asyncio
import functools
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools
from multidict import CIMultiDict

KEPT_SECONDS = 2.0
"""How long an idle connection is reused. Servers close idle connections later than that."""
_MOST_BUFFERED_BYTES = 1 << 20
_START = re.compile(r"[^/?#]*(?://[^/?#]*)?")
_TLS_ALERT = b"\x15\x03"
"""First bytes of the answer of a TLS server to plain HTTP."""
_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


class CannotConnectError(OSError):
    """The connection was refused, or the address cannot be reached. No request was sent."""


def is_loopback(url: str) -> bool:
    """True if an address is plain HTTP to this machine. Raises ValueError if it is invalid."""
    return _parse_server(_split_start(url)).is_loopback


class _Server(NamedTuple):
    is_loopback: bool
    host: str
    """Value of the `Host` header."""
    place: tuple[str, int]


@functools.lru_cache(maxsize=64)
def _parse_server(start: str) -> _Server:
    """Parse scheme, host and port. Raises ValueError if they are invalid. Cached, because there are few servers."""
    parts = urlsplit(start)
    if parts.scheme != "http" or parts.hostname not in _HOSTS:
        return _Server(False, parts.netloc, ("", 0))
    return _Server(True, parts.netloc, (parts.hostname, parts.port or 80))


def _split_start(url: str) -> str:
    """The part of an address before its path: scheme, host and port; '' if it has no such part."""
    match = _START.match(url)
    return match[0] if match else ""


class LoopbackAnswer(asyncio.Protocol):
    """A connection and the answer that it receives. The HTTP parser (httptools) calls the `on_` methods."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.is_over = False
        self.read_seconds: float | None = None
        self.used_at = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._has_head = False
        self._may_be_kept = False
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def send(self, request: bytes, read_seconds: float | None) -> None:
        """Send a request, and return when status and headers of the answer have arrived. `read_seconds`: longest time
        without any data."""
        self.headers = CIMultiDict()
        self.is_over = self._has_head = False
        self.read_seconds = read_seconds
        self._transport.write(request)
        while not self._has_head:
            await self._wait_for_change()

    @property
    def content(self) -> "LoopbackAnswer":
        """The body of the answer: this object itself, which has `iter_chunked` as aiohttp's body object has."""
        return self

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.iter_chunked(0)])

    async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        while True:
            if self._pieces:
                piece = self._pieces.popleft()
                if self._buffered_bytes >= _MOST_BUFFERED_BYTES > self._buffered_bytes - len(piece):
                    self._transport.resume_reading()
                self._buffered_bytes -= len(piece)
                yield piece
            elif self.is_over:
                return
            else:
                await self._wait_for_change()

    def is_usable(self) -> bool:
        """True if another request can be sent on this connection: open, idle, and used less than KEPT_SECONDS ago."""
        is_free = self.is_over and self._may_be_kept and not self._pieces and not self._transport.is_closing()
        return is_free and time.monotonic() - self.used_at < KEPT_SECONDS

    def close(self) -> None:
        self._transport.abort()

    async def _wait_for_change(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        if self.read_seconds is None:
            await self._waiter
        else:
            async with asyncio.timeout(self.read_seconds):
                await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            is_tls = data.startswith(_TLS_ALERT)
            self._error = ConnectionError("the answer is TLS" if is_tls else f"the answer is no HTTP: {error}")
            self.close()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if self._error is None:
            cause = error if isinstance(error, OSError) else None
            self._error = cause or ConnectionResetError("the server has closed the connection")
        self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.add(name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = True

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        if self._buffered_bytes < _MOST_BUFFERED_BYTES <= self._buffered_bytes + len(piece):
            self._transport.pause_reading()
        self._buffered_bytes += len(piece)

    def on_message_complete(self) -> None:
        self.is_over = True
        self._may_be_kept = self._parser.should_keep_alive()
        self.used_at = time.monotonic()


class LoopbackClient:
    """HTTP client with a pool of connections to servers on this machine."""

    def __init__(self, connect_seconds: float) -> None:
        self._connect_seconds = connect_seconds
        self._free: dict[tuple[str, int], deque[LoopbackAnswer]] = {}  # the most recently used one is last

    @asynccontextmanager
    async def request(
        self, method: str, url: str, *, data: bytes | None, headers: Mapping[str, str], read_seconds: float | None
    ) -> AsyncIterator[LoopbackAnswer]:
        """Send a request and yield its answer. If the `async with` block does not read all of it, the connection is
        closed. `read_seconds`: longest time without data from the server. Raises ValueError for an invalid address."""
        start = _split_start(url)
        _, host, place = _parse_server(start)
        request = _format_request(method, host, url[len(start) :], headers, data)
        connection = await self._connect(place)
        try:
            await connection.send(request, read_seconds)
            yield connection
        finally:
            if connection.is_usable():
                idle = self._free[place]
                idle.append(connection)
                while idle and not idle[0].is_usable():
                    idle.popleft().close()
            else:
                connection.close()

    def close(self) -> None:
        """Close all idle connections. Those of running requests stay open."""
        for idle in self._free.values():
            while idle:
                idle.pop().close()

    async def _connect(self, place: tuple[str, int]) -> LoopbackAnswer:
        idle = self._free.setdefault(place, deque())
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await asyncio.get_running_loop().create_connection(LoopbackAnswer, *place)
        except OSError as error:
            raise CannotConnectError(error.errno, error.strerror or str(error) or "it takes too long") from error
        return connection


def _format_request(method: str, host: str, target: str, headers: Mapping[str, str], data: bytes | None) -> bytes:
    lines = [f"{method} {target or '/'} HTTP/1.1", f"Host: {host}", *(f"{name}: {headers[name]}" for name in headers)]
    if data is not None or method != "GET":
        lines.append(f"Content-Length: {len(data or b'')}")
    if any(not line.isprintable() for line in lines) or " " in target:
        raise ValueError("an address or a header holds a character that cannot be sent")
    return "\r\n".join([*lines, "", ""]).encode() + (data or b"")
