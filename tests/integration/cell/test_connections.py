"""Slow and idle clients: the cell closes their connections, and they do not keep other clients out."""

import asyncio
import contextlib
import http.client
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.support.cells.served_cell import ServedCell

from remuda.cell.http.edge import connections

ONE_BYTE = b"POST /api/v4/jobs/request HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
WITH_FEW_DESCRIPTORS = ["sh", "-c", 'ulimit -Sn 100; ulimit -Hn 200; exec "$@"', "sh"]


class LimitedCell(NamedTuple):
    """A cell process with few file descriptors."""

    port: int
    log: Path


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[LimitedCell]:
    log = tmp_path / "log"
    options = ["--data", str(tmp_path / "cell"), "--listen", "127.0.0.1:0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*WITH_FEW_DESCRIPTORS, sys.executable, "-m", "remuda.cli.main", "cell", "serve", *options],
            stdin=subprocess.DEVNULL,
            stderr=output,
            env={**os.environ, "REMUDA_ADMIN_TOKEN": "long-enough-token", "REMUDA_BODY_SILENT_SECONDS": "60"},
        )
    try:
        deadline = time.monotonic() + 20
        while b"the cell serves on " not in (logged := log.read_bytes()):
            assert process.poll() is None, logged
            assert time.monotonic() < deadline, logged
            time.sleep(0.05)
        url = logged.split(b"the cell serves on ")[1].split()[0].decode()
        yield LimitedCell(urlsplit(url).port or 0, log)
    finally:
        process.terminate()
        process.wait(20)


def test_a_flood_of_idle_connections_keeps_no_client_out(limited: LimitedCell) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(260):
            caller = stack.enter_context(socket.create_connection(("127.0.0.1", limited.port), timeout=10))
            with contextlib.suppress(ConnectionError):
                caller.sendall(ONE_BYTE if number % 2 else b"GET /-/health HT")
        for _ in range(3):
            connection = http.client.HTTPConnection("127.0.0.1", limited.port, timeout=10)
            connection.request("GET", "/-/health")
            assert connection.getresponse().status == 200
            connection.close()
    assert limited.log.stat().st_size < 5000, limited.log.read_text()[:5000]


def _connect(cell: ServedCell, data: bytes) -> socket.socket:
    address = urlsplit(cell.url)
    caller = socket.create_connection((address.hostname or "", address.port or 0), timeout=10)
    caller.sendall(data)
    return caller


def _read_all(caller: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := caller.recv(4096):
            received += piece
    return received


def test_a_body_that_does_not_arrive_gets_408(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", body_silent_seconds=0.2) as cell, _connect(cell, ONE_BYTE) as caller:
        response = _read_all(caller)
    assert response.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in response.lower()


def test_a_held_poll_may_be_silent(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", body_silent_seconds=0.1) as cell:
        runner = cell.new_runner()
        body = b'{"token": "%s", "last_update": "x", "hold_seconds": 50}' % runner.token.encode()
        head = b"POST /api/v4/jobs/request HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        with _connect(cell, head + body) as caller:
            cell.until_metric("remuda_cell_held_polls 1.0")
            assert select.select([caller], [], [], 0.5)[0] == []


async def test_a_head_that_does_not_arrive_ends_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short_limits = connections.Connections(most=100, head_seconds=0.2)
    monkeypatch.setattr("remuda.cell.server.connections_within", lambda descriptors: short_limits)
    with ServedCell(tmp_path / "cell") as cell:
        for beginning in (b"", b"GET /-/health HTTP/1.1\r\nX-Sl", b"GET /-/health HTTP/1.1\r\nHost: x\r\n\r\nGET /"):
            with _connect(cell, beginning) as caller:
                began = time.monotonic()
                await asyncio.to_thread(_read_all, caller)
                assert time.monotonic() - began < 5


def test_pieces_of_a_log_may_be_split_and_pipelined(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        project = cell.new_project("app", "job: {script: make}")
        runner = cell.new_runner()
        job = runner.take()
        assert runner.put(job, "running").status == 200

        def piece(start: int, data: bytes, token: str = job["token"]) -> bytes:
            return (
                f"PATCH /api/v4/jobs/{job['id']}/trace HTTP/1.1\r\nHost: x\r\nJOB-TOKEN: {token}\r\n"
                f"Content-Range: {start}-{start + len(data) - 1}\r\nContent-Length: {len(data)}\r\n\r\n"
            ).encode() + data

        with _connect(cell, b"") as caller:
            slow = piece(0, b"one ")
            for part in (slow[:30], slow[30:-2], slow[-2:]):
                caller.sendall(part)
                time.sleep(0.05)
            assert _read_heads(caller, 1) == [(b"202", b"0-4")]
            caller.sendall(piece(4, b"two ") + piece(8, b"three ") + piece(4, b"two three ") + piece(99, b"gap"))
            assert _read_heads(caller, 4) == [(b"202", b"0-8"), (b"202", b"0-14"), (b"202", b"0-14"), (b"416", b"0-14")]
            caller.sendall(piece(14, b"no", token=job["token"][:-2]) + piece(14, b"four"))
            assert _read_heads(caller, 2) == [(b"403", b""), (b"202", b"0-18")]
        assert runner.put(job, "success").status == 200
        with _connect(cell, piece(0, b"one ") + piece(18, b"late")) as caller:
            assert _read_heads(caller, 2) == [(b"202", b"0-18"), (b"403", b"")]
        assert cell.api("GET", f"/projects/{project}/jobs/{job['id']}/trace").body == b"one two three four"


def _read_heads(caller: socket.socket, count: int) -> list[tuple[bytes, bytes]]:
    """Read `count` responses and return the status and the `Range` header of each."""
    received = b""
    while received.count(b"HTTP/1.1 ") < count or not received.endswith((b'"', b"}")):
        received += caller.recv(65536)
    answers = received.split(b"HTTP/1.1 ")[1:]
    return [(answer[:3], answer.partition(b"\r\nrange: ")[2].partition(b"\r\n")[0]) for answer in answers]
