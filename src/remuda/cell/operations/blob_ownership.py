"""Whose blobs lie at an address that somebody gave, and whose data folder this is: of one store, and of no other.

Decided here: an address belongs to the store that first used it. A cell removes blobs that its store does not know;
so one that is started with another store, by a mistyped address or beside a new database, must not begin. The same
holds for a data folder and a database elsewhere, and for that database and another folder: one whose disk is not
mounted has none of the repositories. Called by `remuda.cell.service` when blobs lie elsewhere than in the data folder,
or rows elsewhere than in it.
"""

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
"""The setting with what the folder's file says, too."""
_LIMIT_BYTES = 100


async def open_blobs(settings: CellSettings, default: Path) -> Blobs:
    """The blobs of a cell: in a bucket, in the folder that the settings name, or in the `default` folder."""
    where = settings.blobs
    if "://" in where:
        # Large and native: only cells that use it import it.
        from remuda.cell.blobs.object_storage import open_bucket

        return await open_bucket(where, endpoint=settings.blobs_endpoint)
    try:
        return FolderBlobs(Path(where) if where else default)
    except OSError as error:
        raise CellError(f"the blobs cannot be kept in {where}: {error.strerror}; give another folder") from None


async def claim_blobs(store: Store, blobs: Blobs, where: str) -> None:
    """Take the address for this store; CellError when it is another one's."""
    owner = await store.settings.load_setting(SETTING)
    if owner is None:
        await store.settings.put_setting(SETTING, uuid.uuid4().hex)
        owner = await store.settings.load_setting(SETTING) or ""
    try:
        found = b"".join([piece async for piece in blobs.read(KEY)]).decode(errors="replace")
    except NotFoundError:
        await blobs.put(KEY, _text(owner), limit_bytes=_LIMIT_BYTES)
        return
    if found != owner:
        raise CellError(
            f"the blobs in {where} belong to another cell, or to another database of this one, and would be removed as "
            f"unknown; give another prefix or folder, or that database. If they are this cell's, remove {KEY!r} there"
        )


async def claim_folder(store: Store, folder: Path) -> None:
    """Take a data folder for a store in a database elsewhere; DataFolderError when one of both belongs to another.

    An empty mark, as a restore leaves, makes a new pair: a copy of a cell is not the cell that it was made of.
    """
    mark = folder / STORE
    found = mark.read_bytes().decode(errors="replace").strip() if mark.exists() else None
    known = await store.settings.load_setting(FOLDER)
    if found and found != known:
        raise DataFolderError(
            f"the data folder {folder} belongs to a cell in another database, and its artifacts would be removed as "
            f"unknown; give that database, or another --data. If it is this cell's, empty the file {mark}"
        )
    if known is None or found == "":
        known = uuid.uuid4().hex
        await store.settings.put_setting(FOLDER, known)
    elif found is None and (await store.projects.list_projects(Page(size=1)))[1]:
        raise DataFolderError(
            f"the cell in this database has another data folder than {folder}, where its repositories are missing; "
            f"mount it, or give it with --data. If it is the right one, make an empty file {mark}"
        )
    if found != known:
        write_whole(mark, f"{known}\n".encode(), durable=True)


async def _text(owner: str) -> AsyncIterator[bytes]:
    yield owner.encode()
