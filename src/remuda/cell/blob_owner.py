"""Whose blobs lie at an address that somebody gave: those of one store, and of no other.

Decided here: an address belongs to the store that first used it. A cell removes blobs that its store does not know;
so one that is started with another store, by a mistyped address or beside a new database, must not begin. Called by
`remuda.cell.service` when blobs lie elsewhere than in the data folder.
"""

import uuid
from collections.abc import AsyncIterator

from remuda.cell.errors import CellError, NotFoundError
from remuda.cell.ports import Blobs, Store

SETTING = "blobs_owner"
KEY = "owner"
_LIMIT_BYTES = 100


async def claim_blobs(store: Store, blobs: Blobs, where: str) -> None:
    """Take the address for this store; CellError when it is another one's."""
    owner = await store.setting(SETTING)
    if owner is None:
        await store.put_setting(SETTING, uuid.uuid4().hex)
        owner = await store.setting(SETTING) or ""
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


async def _text(owner: str) -> AsyncIterator[bytes]:
    yield owner.encode()
