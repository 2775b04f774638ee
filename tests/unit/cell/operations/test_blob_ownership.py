"""A blob location belongs to one cell, and a data folder to one database."""

from pathlib import Path

import pytest

from remuda.cell.blobs.memory import MemoryBlobs
from remuda.cell.errors import CellError, DataFolderError
from remuda.cell.operations.blob_ownership import KEY, claim_blobs, claim_folder, open_blobs
from remuda.cell.operations.data_folder import STORE
from remuda.cell.settings import CellSettings
from remuda.cell.store.memory.store import MemoryStore
from remuda.testing.builders import a_project


async def test_an_unusable_default_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    folder.write_text("a file, not a folder")
    with pytest.raises(CellError, match=f"cannot be kept in {folder}: Not a directory"):
        await open_blobs(CellSettings(data=tmp_path), folder)


async def test_blobs_belong_to_the_store_that_first_used_them() -> None:
    store, other_store, blobs = MemoryStore(), MemoryStore(), MemoryBlobs()
    for _ in range(2):
        await claim_blobs(store, blobs, "s3://bucket/one")
    with pytest.raises(CellError, match=r"in s3://bucket/one belong to another cell.*another prefix"):
        await claim_blobs(other_store, blobs, "s3://bucket/one")
    await claim_blobs(other_store, MemoryBlobs(), "s3://bucket/two")
    await blobs.remove(KEY)
    await claim_blobs(other_store, blobs, "s3://bucket/one")


async def test_a_data_folder_belongs_to_the_database_that_first_used_it(tmp_path: Path) -> None:
    store, other_store = MemoryStore(), MemoryStore()
    for _ in range(2):
        await claim_folder(store, tmp_path)
    with pytest.raises(DataFolderError, match=r"belongs to a cell in another database.*empty the file"):
        await claim_folder(other_store, tmp_path)
    (tmp_path / STORE).write_text("")
    await claim_folder(other_store, tmp_path)
    with pytest.raises(DataFolderError, match="another database"):
        await claim_folder(store, tmp_path)


async def test_a_folder_without_the_repositories_is_refused(tmp_path: Path) -> None:
    store, mounted, empty = MemoryStore(), tmp_path / "mounted", tmp_path / "empty"
    mounted.mkdir()
    empty.mkdir()
    await claim_folder(store, mounted)
    await store.projects.add_project(a_project())
    with pytest.raises(DataFolderError, match=r"another data folder than .*empty, where its repositories are missing"):
        await claim_folder(store, empty)
    assert not list(empty.iterdir())
    (empty / STORE).touch()
    await claim_folder(store, empty)
    with pytest.raises(DataFolderError, match="another database"):
        await claim_folder(store, mounted)
