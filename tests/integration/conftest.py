"""Fixtures that tests of several folders use: a cell, a manager on it, an agent, little servers."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.manager_bench import ManagerBench
from tests.support.servers.object_server import ObjectServer, serving_objects
from tests.support.servers.step_server import StepServer, serving
from tests.support.servers.vault_server import FakeVault, serving_vault

from remuda.testing.agent_process import AgentProcess
from remuda.testing.coordinator import Coordinator


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[ServedCell]:
    """A cell that serves on loopback."""
    with ServedCell(tmp_path / "cell") as served:
        yield served


@pytest.fixture
async def cell_bench(tmp_path: Path, cell: ServedCell) -> AsyncIterator[ManagerBench]:
    """A manager with one shell runner of the cell."""
    bench = ManagerBench(tmp_path, cell)
    yield bench
    await bench.close()


@pytest.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    """A strict server for managers; in the end no call may have broken a rule."""
    server = Coordinator()
    await server.start()
    yield server
    await server.stop()
    assert server.violations == []


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """A running agent."""
    async with AgentProcess(tmp_path / "data") as process:
        await process.start()
        yield process


@pytest.fixture
async def open_agent(place: Path) -> AsyncIterator[AgentProcess]:
    """A running agent in a folder that other users can enter."""
    async with AgentProcess(place / "data") as process:
        await process.start()
        yield process


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StepServer]:
    """A server for git and artifacts."""
    with serving(tmp_path / "repos") as state:
        yield state


@pytest.fixture
def storage() -> Iterator[ObjectServer]:
    """An object storage."""
    with serving_objects() as state:
        yield state


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    with serving_vault() as state:
        yield state


@pytest.fixture
def signing_key(tmp_path: Path) -> Path:
    """A private key; its public half is `public.pem` beside it."""
    return write_signing_key(tmp_path)


@pytest.fixture
def open_key(place: Path) -> Path:
    """A private key in a folder that other users can enter; its public half is `public.pem` beside it."""
    return write_signing_key(place)


def write_signing_key(folder: Path) -> Path:
    path = folder / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
    path.chmod(0o600)
    subprocess.run(["openssl", "pkey", "-in", path, "-pubout", "-out", folder / "public.pem"], check=True)
    return path
