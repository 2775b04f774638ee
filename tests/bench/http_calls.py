"""Cheap HTTP/1.1 clients, cells as processes of their own, and how a figure is printed: for the benches of the cell.

Nothing is measured here. A client writes a request as bytes it was given and looks only for the status, two headers
and the length of the answer: what a bench measures is the cell, not its caller. Where thousands of calls a second share
two cores with the cell, even asyncio is too dear: `call_all` does without.
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
"""A bench is one caller that does the work of hundreds."""
_START_SECONDS = 30
_GET_FLAGS, _SET_FLAGS, _SPREAD = 0x80086601, 0x40086602, 0x20000
"""Of linux/fs.h, as `chattr +T` uses them."""

Show = Callable[[str, str, str], None]


def shown(name: str, figure: str, note: str = "") -> None:
    """A figure on a line of its own."""
    print(f"{name:<66} {figure:>16}  {note}".rstrip(), flush=True)


@contextmanager
def bench_folder() -> Iterator[Path]:
    """A folder far from where others have just deleted files, as long as the block runs.

    ext4 without a journal passes over every inode that was freed within the last half minute, one by one, when it looks
    for one for a new file. Where thousands were, which tests and benches do, a new file takes 0.8 ms instead of 20 us,
    and each job's log is one. Folders in one with this mark are spread over the disk.
    """
    parent = Path(tempfile.gettempdir()) / "remuda-bench"
    parent.mkdir(exist_ok=True)
    parent.chmod(0o755)
    with suppress(OSError):  # other file systems know no such mark
        file = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            flags = struct.unpack("l", fcntl.ioctl(file, _GET_FLAGS, struct.pack("l", 0)))[0]
            fcntl.ioctl(file, _SET_FLAGS, struct.pack("l", flags | _SPREAD))
        finally:
            os.close(file)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


class Answer(NamedTuple):
    """What came back."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: bytes) -> str:
        """A header, by its name as the cell writes it."""
        _, _, rest = self.head.partition(b"\r\n" + name + b": ")
        return rest.partition(b"\r\n")[0].decode()


class Caller(asyncio.Protocol):
    """One connection that is kept; one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._coming = bytearray()
        self._head = b""
        self._wanted = -1
        self._answer: asyncio.Future[Answer] | None = None

    @classmethod
    async def connected(cls, port: int) -> "Caller":
        _, caller = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return caller

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._coming += data
        if self._wanted < 0:
            end = self._coming.find(b"\r\n\r\n")
            if end < 0:
                return
            self._head = bytes(self._coming[: end + 2])
            del self._coming[: end + 4]
            _, found, rest = self._head.lower().partition(b"\r\ncontent-length: ")
            self._wanted = int(rest.partition(b"\r\n")[0]) if found else 0
        if len(self._coming) >= self._wanted and self._answer is not None:
            answer = Answer(int(self._head[9:12]), self._head, bytes(self._coming[: self._wanted]))
            self._coming.clear()
            self._wanted = -1
            waiting, self._answer = self._answer, None
            if not waiting.done():
                waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the cell hung up"))

    async def call(self, start: bytes, headers: bytes, body: bytes = b"") -> Answer:
        """`start` is method and path; `headers` are whole lines."""
        assert self._transport is not None
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._transport.write(request(start, headers, body))
        return await answer

    async def api(self, method: str, path: str, body: object = None) -> Any:
        """A request of the administrator's that must succeed."""
        raw = b"" if body is None else json.dumps(body).encode()
        headers = f"PRIVATE-TOKEN: {TOKEN}\r\nContent-Type: application/json\r\n".encode()
        answer = await self.call(f"{method} {path}".encode(), headers, raw)
        assert answer.status < 300, answer
        return json.loads(answer.body) if answer.body else None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def request(start: bytes, headers: bytes, body: bytes = b"") -> bytes:
    """A request as it is sent; `start` is method and path, `headers` are whole lines."""
    return b"%b HTTP/1.1\r\nHost: cell\r\nContent-Length: %d\r\n%b\r\n%b" % (start, len(body), headers, body)


Calls = Generator[bytes, Answer, None]
"""Yields requests, one after the other, and is sent the answer to each."""


def call_all(calls: Iterable[tuple[int, Calls]]) -> None:
    """Make calls until all are through, each series over a connection of its own to the port that it names."""
    lines: dict[int, tuple[socket.socket, Calls, bytearray]] = {}
    with select.epoll() as poll, ExitStack() as stack:
        for port, series in calls:
            line = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines[line.fileno()] = line, series, bytearray()
            poll.register(line, select.EPOLLIN)
            line.sendall(next(series))
        while lines:
            for number, _ in poll.poll():
                line, series, coming = lines[number]
                piece = line.recv(1 << 18)
                if not piece:
                    raise ConnectionResetError("the cell hung up")
                coming += piece
                answer = _whole(coming)
                if answer is None:
                    continue
                coming.clear()
                try:
                    line.sendall(series.send(answer))
                except StopIteration:
                    poll.unregister(line)
                    del lines[number]


def _whole(coming: bytearray) -> Answer | None:
    end = coming.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(coming[: end + 2])
    _, found, rest = head.partition(b"\r\ncontent-length: ")
    wanted = int(rest[: rest.find(b"\r")]) if found else 0
    if len(coming) < end + 4 + wanted:
        return None
    return Answer(int(head[9:12]), head, bytes(coming[end + 4 :]))


class ServedProcess(NamedTuple):
    """A cell that serves."""

    port: int
    pid: int


@contextmanager
def served(
    folder: Path, *, database: str = "", processes: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[list[ServedProcess]]:
    """Processes of one cell, started with the command that an operator types, while the block runs."""
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
            _await_served(port, process)
            started.append(ServedProcess(port, process.pid))
        yield started


def _await_served(port: int, process: subprocess.Popen[bytes]) -> None:
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
    raise AssertionError("the cell does not serve")


def resident(pid: int) -> int:
    """Memory that only this process has, and its share of what others have too (PSS), in bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


async def new_project(caller: Caller, name: str, pipeline_file: str) -> int:
    """A project with one commit, which starts its first pipeline."""
    project = await caller.api("POST", "/api/v4/projects", {"name": name})
    action = {"action": "create", "file_path": ".gitlab-ci.yml", "content": pipeline_file}
    commit = {"branch": "main", "commit_message": "First", "actions": [action]}
    await caller.api("POST", f"/api/v4/projects/{project['id']}/repository/commits", commit)
    return int(project["id"])


async def new_runner(caller: Caller, **settings: object) -> str:
    """The token of a runner for all projects."""
    made = await caller.api("POST", "/api/v4/user/runners", {"runner_type": "instance_type", **settings})
    return str(made["token"])
