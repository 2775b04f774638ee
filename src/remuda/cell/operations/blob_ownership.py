"""Opens the blob storage of a cell, and checks that the blobs and the data folder belong to the cell's database.

A cell deletes blobs that its database does not know. So a cell must not start with the blobs of another database, for
example after a mistyped address, nor with another cell's data folder: its repositories would be missing. The first
database that uses a blob storage or data folder marks it as its own."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from remuda.cell.blobs.folder import FolderBlobs
from remuda.cell.blobs.port import Blobs
from remuda.cell.errors import CellError, DataFolderError, NotFoundError
from remuda.cell.operations.data_folder import STORE
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.values import Page
from remuda.lib.files import write_whole

SETTING = "blobs_owner"
KEY = "owner"
FOLDER = "data_folder"
"""The name of the setting that has the same id as the file `STORE` in the data folder."""
_LIMIT_BYTES = 100


async def open_blobs(settings: CellSettings, default: Path) -> Blobs:
    """Open the bucket or folder for blobs in the settings, else the folder `default`. Raises CellError if unusable."""
    if "://" in settings.blobs:
        # Large and native: only cells that use it import it.
        from remuda.cell.blobs.object_storage import open_bucket

        return await open_bucket(settings.blobs, endpoint=settings.blobs_endpoint)
    folder = Path(settings.blobs) if settings.blobs else default
    try:
        return FolderBlobs(folder)
    except OSError as error:
        raise CellError(f"the blobs cannot be kept in {folder}: {error.strerror}; give another folder") from None


async def claim_blobs(store: Store, blobs: Blobs, where: str) -> None:
    """Mark the blob storage (at `where`) as that of the database `store`. CellError if it is marked for another one."""
    owner = await store.settings.load_setting(SETTING)
    if owner is None:
        await store.settings.put_setting(SETTING, uuid.uuid4().hex)
        owner = await store.settings.load_setting(SETTING) or ""
    try:
        marked = b"".join([piece async for piece in blobs.read(KEY)]).decode(errors="replace")
    except NotFoundError:
        await blobs.put(KEY, _text(owner), limit_bytes=_LIMIT_BYTES)
        return
    if marked != owner:
        raise CellError(
            f"the blobs in {where} belong to another cell, or to another database of this one, and would be removed as "
            f"unknown; give another prefix or folder, or that database. If they are this cell's, remove {KEY!r} there"
        )


async def claim_folder(store: Store, folder: Path) -> None:
    """Mark a data folder as that of the database `store`, if neither is in use yet. Raises DataFolderError if the
    folder belongs to another database, or the database to another folder. After a restore the mark file is empty. Then
    the folder gets a new mark, which is also stored in the database, because a restored copy is a cell of its own."""
    mark = folder / STORE
    marked = mark.read_bytes().decode(errors="replace").strip() if mark.exists() else None
    expected = await store.settings.load_setting(FOLDER)
    if marked and marked != expected:
        raise DataFolderError(
            f"the data folder {folder} belongs to a cell in another database, and its artifacts would be removed as "
            f"unknown; give that database, or another --data. If it is this cell's, empty the file {mark}"
        )
    if expected is None or marked == "":
        expected = uuid.uuid4().hex
        await store.settings.put_setting(FOLDER, expected)
    elif marked is None and (await store.projects.list_projects(Page(size=1)))[1]:
        raise DataFolderError(
            f"the cell in this database has another data folder than {folder}, where its repositories are missing; "
            f"mount it, or give it with --data. If it is the right one, make an empty file {mark}"
        )
    if marked != expected:
        write_whole(mark, f"{expected}\n".encode(), durable=True)


async def _text(owner: str) -> AsyncIterator[bytes]:
    yield owner.encode()
