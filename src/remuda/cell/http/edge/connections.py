"""Which connections are kept: a bounded number, and none whose request does not come.

Decided here: how many connections a cell has at most (half of its descriptors; the other half is for the files and
programs that requests need), which one goes when there is one too many, and how long the head of a request may be and
take, and how slowly an answer may be read.
The one that goes is the one that has been silent for longest among those that wait for their caller; a request that
came in whole, such as a held poll, is never cut. How long a body may be silent is decided in `bodies`. uvicorn makes
one `Connection` for each that it accepts; everything else about HTTP is uvicorn's.

An answer leaves in one piece where it can: uvicorn writes the head and the body one after the other, and every write
is a call of the kernel here and a packet to be waited for there, which together cost more than most answers.

Invariant: callers who send nothing cannot keep out those who do.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

HEAD_SECONDS = 30.0
READER_SECONDS = 60.0
SLOWEST_BYTES_PER_SECOND = 1024
"""Who reads an answer more slowly is cut off: it, or the file it is read from, is held until then."""
READER_CHECKS = 4
"""The reader's time is counted in so many parts: a stop of the whole machine costs the reader one part, not all."""
HEAD_BYTES = 64 * 1024
"""The address and all headers of a request; also those that come behind its body."""
_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s"
)
HELD_BYTES = 64 * 1024
"""So much of an answer is put together before it is written."""
BACKLOG = 2048
"""Connections that wait to be accepted; they need no descriptor of ours yet."""


AtOnce = Callable[[RequestResponseCycle], bool]
"""Answers a PATCH whose body is whole, if it can do so without waiting for anything, and whether it did."""


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """What the connections of one server share."""

    most: int
    head_seconds: float = HEAD_SECONDS
    reader_seconds: float = READER_SECONDS
    """How long a caller may read nothing, or almost nothing, of an answer that waits for it."""
    at_once: AtOnce | None = None
    waiting: dict["Connection", None] = msgspec.field(default_factory=dict)
    """Those that wait for their caller, the one that has been silent for longest first."""

    @property
    def at_one_go(self) -> int:
        """How many asyncio may accept in a row. It does so some times over before the first one is looked at."""
        return max(min(BACKLOG, self.most // 8), 1)


def connections_within(descriptors: int) -> Connections:
    """For a process that may have so many files and sockets open."""
    return Connections(most=max(descriptors // 2, 1))


class _TooLongError(ValueError):
    """The head of a request has too many bytes: the parser gives up, and uvicorn answers."""


class JoinedWrites:
    """A transport whose small writes of one turn of the loop go out as one."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._held_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes >= HELD_BYTES:
            self._flush()

    def write_now(self, data: bytes) -> None:
        """The same for what nothing follows that could go with it."""
        if self._held:
            self.write(data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            data, self._held, self._held_bytes = b"".join(self._held), [], 0
            self._transport.write(data)


def send_whole(send: Send, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
    """Write an answer at one go, past uvicorn's way for one that comes in pieces; whether that was possible.

    `headers` have a Content-Length. Most answers are a few bytes, which take less time than to go that way twice.
    """
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle) or cycle.scope["method"] == "HEAD" or cycle.flow.write_paused:
        return False
    if cycle.disconnected or cycle.response_started or not isinstance(cycle.transport, JoinedWrites):
        return False
    content = [STATUS_LINE[status]]
    for name, value in (*cycle.default_headers, *headers):
        if name == b"connection":
            return False
        content += (name, b": ", value, b"\r\n")
    if HEADER_VALUE_RE.search(b"".join(content[3::4])):
        return False
    content += (b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n", body)
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write_now(b"".join(content))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


class Connection(HttpToolsProtocol):
    """One connection; `shared` is the same for all of a server."""

    def __init__(self, *args: Any, shared: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shared = shared
        self._is_in_head = True
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._fed_bytes = 0
        self._idle_since = math.inf
        """When the last answer was out, if no further request has begun."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._put_off: Any = None
        """Who answers the request whose body is just coming in."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self._await_head()
        self._sort_in()
        if len(self.connections) > self._shared.most:
            next(iter(self._shared.waiting))._cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.waiting.pop(self, None)
        self._stop_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._stop_reader_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """There is more to send than the kernel takes: from now on the caller must read."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        self._stop_reader_timer()
        super().resume_writing()

    def _await_reader(self) -> None:
        self._stop_reader_timer()
        self._start_reader_timer(self.transport.get_write_buffer_size(), READER_CHECKS)

    def _start_reader_timer(self, unsent: int, checks: int) -> None:
        seconds = self._shared.reader_seconds / READER_CHECKS
        self._reader_timer = self.loop.call_later(seconds, self._check_reader, unsent, checks)

    def _check_reader(self, unsent: int, checks: int) -> None:
        """Cut the connection if the caller has read too little of `unsent` bytes and this is the last check."""
        self._reader_timer = None
        read = unsent - self.transport.get_write_buffer_size()
        if read >= self._shared.reader_seconds * SLOWEST_BYTES_PER_SECOND:
            self._await_reader()
        elif checks > 1:
            self._start_reader_timer(unsent, checks - 1)
        else:
            self._cut()

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def data_received(self, data: bytes) -> None:
        was_in_head = self._is_in_head
        super().data_received(data)
        self._begin()
        if self._is_in_head and self._head_timer is None:
            self._await_head()
        # The parser keeps to itself what it has of a header that is not complete.
        self._fed_bytes = self._fed_bytes + len(data) if was_in_head and self._is_in_head else 0
        if self._fed_bytes > HEAD_BYTES and not self.transport.is_closing():
            self._head_bytes = self._fed_bytes
            self.send_400_response("")
        self._sort_in()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._is_in_head = True
        self._stop_timer()  # it begins anew with the head, if the head does not come in one piece

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        if self._head_bytes > HEAD_BYTES:
            raise _TooLongError
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > HEAD_BYTES:
            raise _TooLongError
        name = name.lower()
        if name == b"expect":
            super().on_header(name, value)
        else:
            self.headers.append((name, value))

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's, except for a head that is too long."""
        if self._head_bytes <= HEAD_BYTES:
            super().send_400_response(msg)
            return
        said = f'{{"message":"431 Request Header Fields Too Large - at most {HEAD_BYTES} bytes"}}'.encode()
        self.transport.write(_TOO_LONG % (len(said), said))
        self.transport.close()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["method"] == "PATCH" and cycle.more_body and self._shared.at_once is not None:
            self._put_off = app
        else:
            super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self._put_off is not None and self._shared.at_once is not None and self._shared.at_once(self.cycle):
            self._put_off = None
        self._begin()

    def _begin(self) -> None:
        """With a request that was not answered at once."""
        app, self._put_off = self._put_off, None
        if app is not None:
            super()._start_asgi_task(self.cycle, app)

    def on_response_complete(self) -> None:
        """As uvicorn's, which makes a timer for every answer and stops it with the next request."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            else:
                self._idle_since = self.loop.time()
                if self._idle_timer is None:
                    self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)
        self._sort_in()

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = math.inf

    def _close_if_idle(self) -> None:
        """Close a connection over which nothing came for as long as one is kept."""
        self._idle_timer = None
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left <= 0:
            self.timeout_keep_alive_handler()
        elif left <= self.timeout_keep_alive:
            self._idle_timer = self.loop.call_later(left, self._close_if_idle)

    def _sort_in(self) -> None:
        """Behind all others that wait for their caller, or not among them while the caller waits for us."""
        self._shared.waiting.pop(self, None)
        if not self._is_answering() and self in self.connections:
            self._shared.waiting[self] = None

    def _is_answering(self) -> bool:
        return bool(self.cycle) and not self.cycle.more_body and not self.cycle.response_complete

    def _await_head(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(self._shared.head_seconds, self._cut_if_head_is_late)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cut_if_head_is_late(self) -> None:
        if not self._is_answering():
            self._cut()

    def _cut(self) -> None:
        """At once: whoever sends nothing may read nothing, too, and then a last word would never be out."""
        self._shared.waiting.pop(self, None)
        self.connections.discard(self)
        self.transport.abort()
