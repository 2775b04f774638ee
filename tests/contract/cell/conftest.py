"""Every adapter of every port of the cell; the suites run over all of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.cell.adapters.blobs import FolderBlobs
from remuda.cell.adapters.memory import MemoryStore
from remuda.cell.adapters.memory_bytes import MemoryBlobs, MemoryTraces
from remuda.cell.adapters.sqlite import SqliteStore
from remuda.cell.adapters.traces import FileTraces
from remuda.cell.ports import Blobs, Store, Traces


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else SqliteStore.open(tmp_path / "cell.sqlite", 1)
    yield opened
    await opened.close()


@pytest.fixture(params=["memory", "files"])
def traces(request: pytest.FixtureRequest, tmp_path: Path) -> Traces:
    return MemoryTraces() if request.param == "memory" else FileTraces(tmp_path / "traces")


@pytest.fixture(params=["memory", "folder"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    return MemoryBlobs() if request.param == "memory" else FolderBlobs(tmp_path / "blobs")
