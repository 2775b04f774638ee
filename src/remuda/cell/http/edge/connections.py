"""HTTP connections: a limit for their number, time limits for slow clients, and fast ways to send an answer.

A process has at most half as many connections as file descriptors; the other half is for files and programs. If there
is one connection too many, the one whose client has sent nothing for the longest time is closed. Connections whose
request is complete and not yet answered (a long poll, for example) are never closed for this reason. So clients that
send nothing cannot keep out those that do.

Measured savings of processor time for a call that appends to a job log (24 rounds, SQLite, two shared cores):
`JoinedWrites` 15 %, `send_whole` 6 %, `FastAnswer` 13 % over eight connections, 21 % over one; one idle timer for each
connection, instead of uvicorn's one for each answer, 3 %. That timer, `bodies.decode_fast` and `errors.JsonBytes`
together save 10 % of the processor time of all calls of a job."""

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
"""A client that reads an answer more slowly is cut off, because it keeps memory or a file open."""
READER_CHECKS = 4
"""`reader_seconds` is counted in this many parts, so that a pause of the whole machine costs a client one part only."""
HEAD_BYTES = 64 * 1024
"""Limit for the address and all headers of a request, including trailers."""
_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s"
)
HELD_BYTES = 64 * 1024
"""`JoinedWrites` collects at most this much before it writes."""
BACKLOG = 2048
"""Connections that wait to be accepted; they take no file descriptor of this process yet."""

FastAnswer = Callable[[RequestResponseCycle], bool]
"""Answers a PATCH whose body is complete, without a task, if that needs no waiting. False if it sent nothing."""


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    most: int
    head_seconds: float = HEAD_SECONDS
    reader_seconds: float = READER_SECONDS
    """How long a client may read nothing, or almost nothing, of an answer."""
    fast_answer: FastAnswer | None = None
    waiting: dict["Connection", None] = msgspec.field(default_factory=dict)
    """Connections that wait for their client; the one that has been silent longest comes first."""

    @property
    def backlog(self) -> int:
        """asyncio's `backlog`: how many new connections it accepts in a row before it serves the first one."""
        return max(min(BACKLOG, self.most // 8), 1)


def connections_within(descriptors: int) -> Connections:
    """The connection limits for a process that may open this many file descriptors: half as many connections."""
    return Connections(most=max(descriptors // 2, 1))


class _TooLongError(ValueError):
    """Raised in the HTTP parser if address and headers are too long; uvicorn then calls `send_400_response`."""


class JoinedWrites:
    """A transport that joins all small writes of one iteration of the event loop into one. uvicorn writes the headers
    and the body of an answer separately, and each write costs a system call and a packet."""

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

    def close(self) -> None:
        self._flush()
        # After a second `close`, asyncio's TLS transport can neither be asked nor aborted.
        if not self._transport.is_closing():
            self._transport.close()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the kernel does not have yet. asyncio's TLS transport counts only those that it has not
        passed on to the transport of the socket."""
        of_socket = getattr(getattr(self._transport, "_ssl_protocol", None), "_transport", None)
        below_tls = of_socket.get_write_buffer_size() if of_socket is not None else 0
        return self._held_bytes + self._transport.get_write_buffer_size() + below_tls

    def _flush(self) -> None:
        if self._held:
            data, self._held, self._held_bytes = b"".join(self._held), [], 0
            self._transport.write(data)


def send_whole(send: Send, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
    """Write a complete answer to uvicorn's connection at once instead of in two ASGI messages; `headers` must have a
    Content-Length. Returns False, with nothing written, if that is not possible: then use `send`."""
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
    cycle.transport.write(b"".join(content))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


class Connection(HttpToolsProtocol):
    """One HTTP connection, with time limits for its client. `shared`: limits and connections of the whole process."""

    def __init__(self, *args: Any, shared: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shared = shared
        self._is_in_head = True
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._fed_bytes = 0
        self._idle_since = math.inf
        """When the last answer was sent; infinite while a request is under way."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._deferred_app: Any = None
        """The application for a PATCH whose body is still coming in; `fast_answer` is tried first."""

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
        """Called by asyncio when the send buffer is full. Starts to measure how fast the client reads."""
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
        """Abort if the client reads an answer too slowly. `unsent`: bytes in the send buffer when the current period of
        `reader_seconds` began; `checks`: how many checks are left in that period, including this one."""
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
        self._start_deferred()
        if self._is_in_head and self._head_timer is None:
            self._await_head()
        # The parser does not report a header before it is complete.
        self._fed_bytes = self._fed_bytes + len(data) if was_in_head and self._is_in_head else 0
        if self._fed_bytes > HEAD_BYTES and not self.transport.is_closing():
            self._head_bytes = self._fed_bytes
            self.send_400_response("")
        self._sort_in()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._is_in_head = True
        self._stop_timer()  # data_received starts it again if the head is not complete

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
        """Answer a request that cannot be parsed: 400, or 431 if its address and headers are too long."""
        if self._head_bytes <= HEAD_BYTES:
            super().send_400_response(msg)
            return
        body = f'{{"message":"431 Request Header Fields Too Large - at most {HEAD_BYTES} bytes"}}'.encode()
        self.transport.write(_TOO_LONG % (len(body), body))
        self.transport.close()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["method"] == "PATCH" and cycle.more_body and self._shared.fast_answer is not None:
            self._deferred_app = app
        else:
            super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self._deferred_app is not None and self._shared.fast_answer is not None:
            self._deferred_app = None if self._shared.fast_answer(self.cycle) else self._deferred_app
        self._start_deferred()

    def _start_deferred(self) -> None:
        """Start the application's task for a PATCH request, if there is one that `fast_answer` did not answer."""
        app, self._deferred_app = self._deferred_app, None
        if app is not None:
            super()._start_asgi_task(self.cycle, app)

    def on_response_complete(self) -> None:
        """Called after an answer. Starts the next request or the idle time, with one timer for all answers."""
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
        """Called by the idle timer. Closes the connection if no request came for `timeout_keep_alive` seconds, else
        waits for the rest of them. No timer runs during a request; `on_response_complete` starts it again."""
        self._idle_timer = None
        remaining = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if remaining <= 0:
            self.timeout_keep_alive_handler()
        elif remaining <= self.timeout_keep_alive:
            self._idle_timer = self.loop.call_later(remaining, self._close_if_idle)

    def _sort_in(self) -> None:
        """Move the connection to the end of `shared.waiting`, because its client was active; if there are too many, the
        first one is closed. A connection with a complete, unanswered request is not in it."""
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
        """Abort the connection without sending the remaining bytes, because its client may never read them."""
        self._shared.waiting.pop(self, None)
        self.connections.discard(self)
        self.transport.abort()
