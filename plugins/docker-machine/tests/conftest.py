"""Fixtures: groups with a fake docker-machine (`docker_groups`), and a server that sends the banner of SSH."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.machines.docker_machine_groups import DockerMachineGroups


@pytest.fixture
async def docker_groups(tmp_path: Path) -> AsyncIterator[DockerMachineGroups]:
    async with DockerMachineGroups(tmp_path) as docker_groups:
        yield docker_groups


@pytest.fixture
async def server() -> AsyncIterator[asyncio.Server]:
    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-test\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        yield server
