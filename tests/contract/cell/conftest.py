"""Fixtures that run the contract tests against every adapter of the store, traces and blobs ports."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.s3_server import PROGRAM as S3_PROGRAM
from tests.support.servers.s3_server import S3Server

from remuda.cell.blobs.folder import FolderBlobs
from remuda.cell.blobs.memory import MemoryBlobs
from remuda.cell.blobs.port import Blobs
from remuda.cell.secrets.sealed_store import SealedStore
from remuda.cell.secrets.sealing import EncryptionKeys, Seals
from remuda.cell.store.memory.store import MemoryStore
from remuda.cell.store.ports import Store
from remuda.cell.store.postgres.store import PostgresStore
from remuda.cell.store.sqlite.store import SqliteStore
from remuda.cell.traces.archive import ArchivedTraces
from remuda.cell.traces.files import FileTraces
from remuda.cell.traces.memory import MemoryTraces
from remuda.cell.traces.port import Traces
from remuda.cell.values import Project
from remuda.testing.builders import a_project


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    adapter: Store
    match request.param:
        case "memory":
            adapter = MemoryStore()
        case "sqlite":
            adapter = SqliteStore.open(tmp_path / "cell.sqlite", 1)
        case _:
            adapter = await PostgresStore.open(request.getfixturevalue("postgres_cell"), 1)
    # A cell always wraps its store like this, which encrypts secret columns.
    yield SealedStore(adapter, Seals(EncryptionKeys([bytes(32)])))
    await adapter.close()


@pytest.fixture
async def project(store: Store) -> Project:
    return await store.projects.add_project(a_project())


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """Create a database with a cell's tables, of which each test gets a copy, and return its name."""

    async def create_tables() -> None:
        await (await PostgresStore.open(postgres_server.url("cell_template"), 1)).close()

    postgres_server.run("CREATE DATABASE cell_template")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, create_tables()).result()
    return "cell_template"


@pytest.fixture
def postgres_cell(postgres_server: PostgresServer, postgres_template: str) -> Iterator[str]:
    with postgres_server.database(postgres_template) as url:
        yield url


@pytest.fixture(params=["memory", "files"])
def traces(request: pytest.FixtureRequest, tmp_path: Path) -> Traces:
    if request.param == "memory":
        return MemoryTraces()
    return ArchivedTraces(FileTraces(tmp_path / "traces"), FolderBlobs(tmp_path / "blobs"))


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3") / "buckets") as server:
        server.new_bucket("blobs")
        yield server


@pytest.fixture(params=["memory", "folder", *(["s3"] if S3_PROGRAM.exists() else [])])
async def blobs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Blobs:
    """Every adapter; the one for S3 only if `make interop` has built a server for it."""
    if request.param == "memory":
        return MemoryBlobs()
    if request.param == "folder":
        return FolderBlobs(tmp_path / "blobs")
    from remuda.cell.blobs.object_storage import open_bucket

    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return await open_bucket(f"s3://blobs/{uuid.uuid4().hex}", endpoint=server.endpoint)
