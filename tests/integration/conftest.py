"""Fixtures for several folders of integration tests: cell, manager, agent, container engine, and fake servers."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.manager_harness import ManagerHarness
from tests.support.servers.docker_engine import DEBIAN, DockerEngine, debian_files
from tests.support.servers.object_server import ObjectServer, run_object_server
from tests.support.servers.step_server import StepServer, run_step_server
from tests.support.servers.vault_server import FakeVault, run_vault_server

from remuda.testing.agent_process import AgentProcess
from remuda.testing.coordinator import Coordinator


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[ServedCell]:
    """A cell that serves on loopback."""
    with ServedCell(tmp_path / "cell") as served:
        yield served


@pytest.fixture
async def cell_harness(tmp_path: Path, cell: ServedCell) -> AsyncIterator[ManagerHarness]:
    """A manager with one shell runner of the cell."""
    harness = ManagerHarness(tmp_path, cell)
    yield harness
    await harness.close()


@pytest.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    """A fake server that checks the calls of managers. Fails the test if a call violated the protocol."""
    server = Coordinator()
    await server.start()
    yield server
    await server.stop()
    assert server.violations == []


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(tmp_path / "data") as process:
        await process.start()
        yield process


@pytest.fixture
async def open_agent(public_folder: Path) -> AsyncIterator[AgentProcess]:
    """A running agent in a folder that other users can enter."""
    async with AgentProcess(public_folder / "data") as process:
        await process.start()
        yield process


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StepServer]:
    """A fake server for git repositories and artifacts."""
    with run_step_server(tmp_path / "repos") as state:
        yield state


@pytest.fixture
def storage() -> Iterator[ObjectServer]:
    """A fake object storage (S3)."""
    with run_object_server() as state:
        yield state


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    with run_vault_server() as state:
        yield state


@pytest.fixture
def signing_key(tmp_path: Path) -> Path:
    """A private key; its public half is `public.pem` beside it."""
    return write_signing_key(tmp_path)


@pytest.fixture
def open_key(public_folder: Path) -> Path:
    """A private key in a folder that other users can enter; its public half is `public.pem` beside it."""
    return write_signing_key(public_folder)


def write_signing_key(folder: Path) -> Path:
    path = folder / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
    path.chmod(0o600)
    subprocess.run(["openssl", "pkey", "-in", path, "-pubout", "-out", folder / "public.pem"], check=True)
    return path


@pytest.fixture(scope="session")
def session_engine() -> Iterator[DockerEngine]:
    """An engine that the tests of the session share; they must not kill it."""
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    with DockerEngine() as engine:
        engine.add_image(DEBIAN, debian_files(), 'CMD ["bash"]')
        yield engine


@pytest.fixture
def engine(session_engine: DockerEngine) -> Iterator[DockerEngine]:
    """The engine of the session. It is empty again after each test."""
    yield session_engine
    session_engine.clear()


@pytest.fixture
def own_engine() -> Iterator[DockerEngine]:
    """A separate engine, which the test may kill."""
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    with DockerEngine() as engine:
        yield engine
