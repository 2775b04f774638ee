"""Fixtures: groups with a fake docker-machine for each test (`yard`), and a server that answers like SSH."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.machines.docker_machine_yard import Yard


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    async with Yard(tmp_path) as yard:
        yield yard


@pytest.fixture
async def server() -> AsyncIterator[asyncio.Server]:
    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-test\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        yield server
