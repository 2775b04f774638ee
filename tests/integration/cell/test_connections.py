"""Callers who send nothing: they are given up, and they keep nobody out."""

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

from remuda.cell.http import connections
from remuda.testing.served_cell import ServedCell

ONE_BYTE = b"POST /api/v4/jobs/request HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
WITH_FEW = ["sh", "-c", 'ulimit -Sn 100; ulimit -Hn 200; exec "$@"', "sh"]


class Limited(NamedTuple):
    """A cell with few descriptors."""

    port: int
    log: Path


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    log = tmp_path / "log"
    options = ["--data", str(tmp_path / "cell"), "--listen", "127.0.0.1:0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*WITH_FEW, sys.executable, "-m", "remuda.cli.main", "cell", "serve", *options],
            stdin=subprocess.DEVNULL,
            stderr=output,
            env={**os.environ, "REMUDA_ADMIN_TOKEN": "long-enough-token", "REMUDA_BODY_SILENT_SECONDS": "60"},
        )
    try:
        deadline = time.monotonic() + 20
        while b"the cell serves on " not in (said := log.read_bytes()):
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)
        url = said.split(b"the cell serves on ")[1].split()[0].decode()
        yield Limited(urlsplit(url).port or 0, log)
    finally:
        process.terminate()
        process.wait(20)


def test_a_flood_of_idle_connections_keeps_nobody_out(limited: Limited) -> None:
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


def _caller(cell: ServedCell, data: bytes) -> socket.socket:
    address = urlsplit(cell.url)
    caller = socket.create_connection((address.hostname or "", address.port or 0), timeout=10)
    caller.sendall(data)
    return caller


def _rest(caller: socket.socket) -> bytes:
    said = b""
    with contextlib.suppress(ConnectionError):
        while piece := caller.recv(4096):
            said += piece
    return said


def test_a_body_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", body_silent_seconds=0.2) as cell, _caller(cell, ONE_BYTE) as caller:
        said = _rest(caller)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in said.lower()


def test_a_held_poll_may_be_silent(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", body_silent_seconds=0.1) as cell:
        runner = cell.new_runner()
        body = b'{"token": "%s", "last_update": "x"}' % runner.token.encode()
        head = b"POST /api/v4/jobs/request HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        with _caller(cell, head + body) as caller:
            cell.until_metric("remuda_cell_held_polls 1.0")
            assert select.select([caller], [], [], 0.5)[0] == []


async def test_a_head_that_does_not_come_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = connections.Connections(most=100, head_seconds=0.2)
    monkeypatch.setattr("remuda.cell.service.connections_within", lambda descriptors: few)
    with ServedCell(tmp_path / "cell") as cell:
        for beginning in (b"", b"GET /-/health HTTP/1.1\r\nX-Sl", b"GET /-/health HTTP/1.1\r\nHost: x\r\n\r\nGET /"):
            with _caller(cell, beginning) as caller:
                began = time.monotonic()
                await asyncio.to_thread(_rest, caller)
                assert time.monotonic() - began < 5
