"""HTTP client of a container engine: Docker, or Podman's API service, over a unix socket or plain TCP. Raises
`EngineGoneError` if the engine cannot be reached, and `EngineRefusedError`, with the status, if it answers with an
error. Every call has its own connection and a timeout, so an engine that dies or hangs never blocks a step forever."""

import contextlib
import http.client
import json
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlencode, urlsplit

from remuda.lib.dataclass import dataclass
from remuda.stdsteps.common.errors import PlatformError, StepError

DEFAULT_HOST = "unix:///var/run/docker.sock"
NEWEST = (1, 51)
"""The newest version of the API that this client uses."""
OLDEST = (1, 41)
CALL_SECONDS = 60.0
CONNECT_SECONDS = 10.0
IDLE_SECONDS = 600.0
"""How long a stream, for example of a pull, may be silent."""
READ_BYTES = 64 * 1024
STDERR = 2
_HEAD = struct.Struct("!BxxxI")


class EngineGoneError(PlatformError):
    """The engine cannot be reached, or the connection broke during a call."""


class EngineRefusedError(StepError):
    """The engine answered with an error status. A status of 500 or more counts as a failure of the platform."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.exit_code = PlatformError.exit_code if status >= 500 else StepError.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a container engine: the path of a unix socket, or host and port."""

    path: str = ""
    host: str = ""
    port: int = 0


def parse_address(text: str) -> Address:
    """Parse DOCKER_HOST or the input `engine`. Raises StepError if it is invalid."""
    parts = urlsplit(text)
    if parts.scheme == "unix" and parts.path and not parts.netloc:
        return Address(path=parts.path)
    with contextlib.suppress(ValueError):  # an invalid port
        if parts.scheme in ("tcp", "http") and parts.hostname:
            return Address(host=parts.hostname, port=parts.port or 2375)
    raise StepError(
        f"{text!r} is not an address of a container engine; write unix:///path or tcp://host:port (without TLS)"
    )


class _Connection(http.client.HTTPConnection):
    def __init__(self, address: Address, seconds: float) -> None:
        super().__init__(address.host or "engine", address.port or None, timeout=seconds)
        self._address = address

    def connect(self) -> None:
        seconds, address = self.timeout, self._address
        if address.path:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(CONNECT_SECONDS)
            self.sock.connect(address.path)
        else:
            self.sock = socket.create_connection((address.host, address.port), CONNECT_SECONDS)
        self.sock.settimeout(seconds)


class Frames:
    """Splits Docker's multiplexed output stream (of an exec, or of logs) into stdout and stderr."""

    def __init__(self) -> None:
        self._head = b""
        self._kind = 0
        self._remaining = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Add bytes; return pairs (1 for stdout or 2 for stderr, data), also for the part of an incomplete frame."""
        parts = []
        while data:
            if not self._remaining:
                missing = _HEAD.size - len(self._head)
                self._head, data = self._head + data[:missing], data[missing:]
                if len(self._head) < _HEAD.size:
                    break
                self._kind, self._remaining = _HEAD.unpack(self._head)
                self._head = b""
                continue
            part, data = data[: self._remaining], data[self._remaining :]
            self._remaining -= len(part)
            parts.append((self._kind, part))
        return parts


class Stream:
    """A connection to a process in a container that carries its input and output."""

    def __init__(self, connection: socket.socket, first: bytes, *, framed: bool = True) -> None:
        """Wrap an open connection. `first`: output that was already read from it. `framed`: False for a process with a
        terminal, whose output is not multiplexed."""
        self.has_ended = False
        self._framed = framed
        self._connection = connection
        self._first = first
        self._frames = Frames()

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def has_more(self) -> bool:
        """True if output is buffered in this object, which `select` would not report."""
        return bool(self._first)

    def read(self, seconds: float) -> list[tuple[int, bytes]] | None:
        """Wait up to `seconds` for output. Returns pairs (1 for stdout or 2 for stderr, data); an empty list if there
        was no output in time; None at the end of the output."""
        data, self._first = self._first, b""
        if not data:
            self._connection.settimeout(seconds)
            try:
                data = self._connection.recv(READ_BYTES)
            except (TimeoutError, BlockingIOError):
                return []
            except OSError:
                data = b""
            if not data:
                self.has_ended = True
                return None
        return self._frames.feed(data) if self._framed else [(1, data)]

    def write(self, data: bytes) -> None:
        """Write to the process's stdin; ignored after its exit."""
        with contextlib.suppress(OSError):
            self._connection.sendall(data)

    def end_input(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._connection.close()


class Engine:
    """A client of one container engine. Opens a new connection for each call."""

    def __init__(self, host: str = "", *, ping_seconds: float = CALL_SECONDS) -> None:
        """`ping_seconds`: how long the first call may take, which asks for the version of the API."""
        self.host = host or DEFAULT_HOST
        self._ping_seconds = ping_seconds
        self._address = parse_address(self.host)

    @property
    def is_local(self) -> bool:
        """True if the engine runs on this machine, which is assumed for a unix socket."""
        return bool(self._address.path)

    @cached_property
    def version(self) -> str:
        """The newest API version that both the engine and this client support. Raises PlatformError if the engine is
        too old, or the server at its address is not an engine."""
        connection = self._connection(self._ping_seconds)
        try:
            headers = self._send(connection, "GET", "/_ping", None, {}).headers
        finally:
            connection.close()
        engine_version = _parse_version(headers.get("Api-Version") or "")
        if engine_version is None:
            raise PlatformError(f"{self.host} does not answer like a container engine; check the address")
        if engine_version < OLDEST:
            raise PlatformError(
                f"the container engine at {self.host} is too old: it has version {engine_version[0]}."
                f"{engine_version[1]} of the API; {OLDEST[0]}.{OLDEST[1]} (Docker 20.10) or newer is required"
            )
        return "{}.{}".format(*min(engine_version, NEWEST))

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = CALL_SECONDS,
        most: int | None = None,
    ) -> Any:
        """Send a request and return the answer: decoded JSON, or bytes if it is not JSON. `seconds`: timeout of the
        connection. `most`: read at most this many bytes of the answer."""
        connection = self._connection(seconds)
        try:
            response = self._send(connection, method, self._target(path, query), body, headers or {})
            data = self._translate_errors(lambda: response.read(most))
            kind = response.headers.get("Content-Type", "")
        finally:
            connection.close()
        return json.loads(data) if kind.startswith("application/json") and data else data

    def lines(
        self, path: str, *, query: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Send a POST and yield the JSON objects of its answer, one per line, as they come (progress of a pull)."""
        connection = self._connection(IDLE_SECONDS)
        try:
            response = self._send(connection, "POST", self._target(path, query), None, headers or {})
            while line := self._translate_errors(response.readline):
                if not line.endswith(b"\n"):
                    raise EngineGoneError(
                        f"the container engine at {self.host} closed the connection in the middle of an answer"
                    )
                if line.strip():
                    yield json.loads(line)
        except ValueError:
            raise PlatformError(f"the container engine at {self.host} did not answer with JSON") from None
        finally:
            connection.close()

    def stream(
        self, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None, framed: bool = True
    ) -> Stream:
        """Send a POST after which the connection carries the input and output of a process (exec, attach), and return
        that stream. `framed`: False for a process with a terminal, whose output is not multiplexed."""
        connection = self._connection(CALL_SECONDS)
        text = json.dumps({} if body is None else body)
        head = (
            f"POST {self._target(path, query)} HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text.encode())}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        )
        self._translate_errors(connection.connect)
        try:
            self._translate_errors(lambda: connection.sock.sendall((head + text).encode()))
            return self._read_upgrade(connection.sock, framed=framed)
        except StepError:
            connection.close()
            raise

    def _read_upgrade(self, sock: socket.socket, *, framed: bool) -> Stream:
        answer = b""
        while b"\r\n\r\n" not in answer:
            part = self._translate_errors(lambda: sock.recv(READ_BYTES))
            if not part:
                raise EngineGoneError(f"the container engine at {self.host} closed the connection without an answer")
            answer += part
        begin, _, rest = answer.partition(b"\r\n\r\n")
        status = int(begin.split(None, 2)[1])
        if status not in (101, 200):
            raise EngineRefusedError(status, _read_message(rest, status))
        return Stream(sock, rest, framed=framed)

    @contextlib.contextmanager
    def start_call(self, path: str, *, query: Mapping[str, Any]) -> Iterator[Callable[[float], Any]]:
        """Send a POST without waiting for the answer, and yield a function that waits for it. The function takes a
        timeout in seconds and returns the decoded JSON."""
        connection = self._connection(CALL_SECONDS)
        target = self._target(path, query)

        def answer(seconds: float) -> Any:
            connection.sock.settimeout(seconds)
            response = self._translate_errors(connection.getresponse)
            data = self._translate_errors(response.read)
            if response.status >= 400:
                raise EngineRefusedError(response.status, _read_message(data, response.status))
            return json.loads(data)

        with contextlib.closing(connection):
            self._translate_errors(lambda: connection.request("POST", target))
            yield answer

    def _connection(self, seconds: float) -> _Connection:
        return _Connection(self._address, seconds)

    def _target(self, path: str, query: Mapping[str, Any] | None) -> str:
        words = {
            key: json.dumps(value) if isinstance(value, dict) else str(value) for key, value in (query or {}).items()
        }
        return f"/v{self.version}{path}" + (f"?{urlencode(words)}" if words else "")

    def _send(
        self, connection: _Connection, method: str, target: str, body: Any, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        kind = {} if data is None else {"Content-Type": "application/json"}
        self._translate_errors(lambda: connection.request(method, target, data, {**kind, **headers}))
        response: http.client.HTTPResponse = self._translate_errors(connection.getresponse)
        if response.status >= 400:
            text = _read_message(self._translate_errors(response.read), response.status)
            connection.close()
            raise EngineRefusedError(response.status, text)
        return response

    def _translate_errors(self, act: Callable[[], Any]) -> Any:
        """Return the result of `act`. Raises its connection errors as EngineGoneError with a readable cause."""
        try:
            return act()
        except FileNotFoundError:
            cause = "the socket does not exist; is the engine installed and running?"
        except PermissionError:
            cause = "this user may not use the socket; add it to the engine's group (docker)"
        except ConnectionRefusedError:
            cause = "nothing listens there; is the engine running?"
        except TimeoutError:
            cause = "it does not answer in time"
        except (http.client.HTTPException, OSError) as error:
            cause = f"the connection broke ({str(error) or type(error).__name__})"
        raise EngineGoneError(f"the container engine at {self.host} cannot be used: {cause}")


def _read_message(body: bytes, status: int) -> str:
    try:
        text = json.loads(body.partition(b"\n")[0] if body.count(b"\n") == 1 else body)["message"]
    except (ValueError, KeyError, TypeError):
        text = body.decode(errors="replace").strip()
    return str(text) or f"the container engine answered with status {status} and no reason"


def _parse_version(text: str) -> tuple[int, int] | None:
    major, dot, minor = text.partition(".")
    return (int(major), int(minor)) if dot and major.isdecimal() and minor.isdecimal() else None
