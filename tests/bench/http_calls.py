"""Helpers for the benchmarks of the cell: cheap HTTP/1.1 clients, cells as their own processes, output of figures.

A client sends a prepared request and parses only the status, a header and the length of the response, so that a
benchmark measures the cell and not its client. With thousands of calls a second on two cores that are shared with the
cell, even asyncio costs too much; `call_all` works without it.
"""

import asyncio
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from remuda.testing.lab import free_port

TOKEN = "glpat-bench-administrator"
UNLIMITED = {"REMUDA_REQUESTS_PER_MINUTE": "0", "REMUDA_JOB_REQUESTS_PER_MINUTE": "0"}
"""No rate limits: one client of a benchmark makes the calls of hundreds."""
_START_SECONDS = 30
_GET_FLAGS, _SET_FLAGS, _SPREAD = 0x80086601, 0x40086602, 0x20000
"""FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_TOPDIR_FL of linux/fs.h, as `chattr +T` uses them."""

Show = Callable[[str, str, str], None]


def print_figure(name: str, figure: str, note: str = "") -> None:
    print(f"{name:<66} {figure:>16}  {note}".rstrip(), flush=True)


@contextmanager
def bench_folder() -> Iterator[Path]:
    """A temporary folder on a part of the disk where no files have just been deleted.

    To find an inode for a new file, ext4 without a journal skips every inode that was freed within the last half
    minute, one by one. After tests and benchmarks, which delete thousands of files, a new file takes 0.8 ms instead of
    20 us, and each job's log is a new file. ext4 spreads the subfolders of a folder with this flag over the disk.
    """
    parent = Path(tempfile.gettempdir()) / "remuda-bench"
    parent.mkdir(exist_ok=True)
    parent.chmod(0o755)
    with suppress(OSError):  # other file systems do not have this flag
        file = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            flags = struct.unpack("l", fcntl.ioctl(file, _GET_FLAGS, struct.pack("l", 0)))[0]
            fcntl.ioctl(file, _SET_FLAGS, struct.pack("l", flags | _SPREAD))
        finally:
            os.close(file)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


class Answer(NamedTuple):
    status: int
    head: bytes
    body: bytes

    def header(self, name: bytes) -> str:
        """Value of a header; the name is case-sensitive. Empty if it is missing."""
        _, _, rest = self.head.partition(b"\r\n" + name + b": ")
        return rest.partition(b"\r\n")[0].decode()


class Caller(asyncio.Protocol):
    """A client with one persistent connection, for one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._head = b""
        self._body_length = -1
        """-1 until the head of the answer is complete."""
        self._answer: asyncio.Future[Answer] | None = None

    @classmethod
    async def connect(cls, port: int) -> "Caller":
        _, caller = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return caller

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._body_length < 0:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            self._head = bytes(self._received[: end + 2])
            del self._received[: end + 4]
            _, has_length, rest = self._head.lower().partition(b"\r\ncontent-length: ")
            self._body_length = int(rest.partition(b"\r\n")[0]) if has_length else 0
        if len(self._received) >= self._body_length and self._answer is not None:
            answer = Answer(int(self._head[9:12]), self._head, bytes(self._received[: self._body_length]))
            self._received.clear()
            self._body_length = -1
            waiting, self._answer = self._answer, None
            if not waiting.done():
                waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the cell closed the connection"))

    async def call(self, start: bytes, headers: bytes, body: bytes = b"") -> Answer:
        """Send a request. `start` is method and path; `headers` are whole lines."""
        assert self._transport is not None
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._transport.write(request(start, headers, body))
        return await answer

    async def api(self, method: str, path: str, body: object = None) -> Any:
        """Call the API as the administrator. The call must succeed. Returns the decoded body."""
        raw = b"" if body is None else json.dumps(body).encode()
        headers = f"PRIVATE-TOKEN: {TOKEN}\r\nContent-Type: application/json\r\n".encode()
        answer = await self.call(f"{method} {path}".encode(), headers, raw)
        assert answer.status < 300, answer
        return json.loads(answer.body) if answer.body else None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def request(start: bytes, headers: bytes, body: bytes = b"") -> bytes:
    """Encode a request. `start` is method and path; `headers` are whole lines."""
    return b"%b HTTP/1.1\r\nHost: cell\r\nContent-Length: %d\r\n%b\r\n%b" % (start, len(body), headers, body)


Calls = Generator[bytes, Answer, None]
"""Yields encoded requests and receives the answer to each."""


def call_all(calls: Iterable[tuple[int, Calls]]) -> None:
    """Run all series of calls concurrently, each over its own connection to its port."""
    connections: dict[int, tuple[socket.socket, Calls, bytearray]] = {}
    with select.epoll() as poll, ExitStack() as stack:
        for port, series in calls:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connections[connection.fileno()] = connection, series, bytearray()
            poll.register(connection, select.EPOLLIN)
            connection.sendall(next(series))
        while connections:
            for descriptor, _ in poll.poll():
                connection, series, received = connections[descriptor]
                piece = connection.recv(1 << 18)
                if not piece:
                    raise ConnectionResetError("the cell closed the connection")
                received += piece
                answer = _parse_answer(received)
                if answer is None:
                    continue
                received.clear()
                try:
                    connection.sendall(series.send(answer))
                except StopIteration:
                    poll.unregister(connection)
                    del connections[descriptor]


def _parse_answer(received: bytearray) -> Answer | None:
    """The answer; None while it is incomplete."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(received[: end + 2])
    _, has_length, rest = head.partition(b"\r\ncontent-length: ")
    length = int(rest[: rest.find(b"\r")]) if has_length else 0
    if len(received) < end + 4 + length:
        return None
    return Answer(int(head[9:12]), head, bytes(received[end + 4 :]))


class CellAddress(NamedTuple):
    """Port and pid of a process of a cell."""

    port: int
    pid: int


@contextmanager
def serve_cell(
    folder: Path, *, database: str = "", processes: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[list[CellAddress]]:
    """Run `remuda cell serve`, in several processes if asked, while the block runs."""
    ports = [free_port() for _ in range(processes)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("REMUDA_", "CI_", "GIT_"))}
    environment |= {"REMUDA_ADMIN_TOKEN": TOKEN, "REMUDA_PUBLIC_URL": f"http://127.0.0.1:{ports[0]}", **UNLIMITED}
    environment |= settings or {}
    started = []
    with ExitStack() as stack:
        for port in ports:
            command = [sys.executable, "-m", "remuda.cli.main", "cell", "serve", "--data", str(folder)]
            command += ["--listen", f"127.0.0.1:{port}", *(["--database", database] if database else [])]
            log = stack.enter_context((folder.parent / f"{folder.name}-{port}.log").open("wb"))
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            _wait_until_healthy(port, process)
            started.append(CellAddress(port, process.pid))
        yield started


def _wait_until_healthy(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/-/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise AssertionError("the cell is not healthy")


def memory_of(pid: int) -> int:
    """Proportional set size (PSS) of a process in bytes: its private memory and its share of shared memory."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


async def new_project(caller: Caller, name: str, pipeline_file: str) -> int:
    """Create a project with one commit, which starts its first pipeline. Returns its id."""
    project = await caller.api("POST", "/api/v4/projects", {"name": name})
    action = {"action": "create", "file_path": ".gitlab-ci.yml", "content": pipeline_file}
    commit = {"branch": "main", "commit_message": "First", "actions": [action]}
    await caller.api("POST", f"/api/v4/projects/{project['id']}/repository/commits", commit)
    return int(project["id"])


async def new_runner(caller: Caller, **settings: object) -> str:
    """Create a runner for all projects. Returns its token."""
    runner = await caller.api("POST", "/api/v4/user/runners", {"runner_type": "instance_type", **settings})
    return str(runner["token"])
