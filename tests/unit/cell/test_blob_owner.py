"""An address with blobs has one owner."""

import pytest

from remuda.cell.adapters.memory import MemoryStore
from remuda.cell.adapters.memory_bytes import MemoryBlobs
from remuda.cell.blob_owner import KEY, claim_blobs
from remuda.cell.errors import CellError


async def test_blobs_belong_to_the_store_that_first_used_them() -> None:
    store, other, blobs = MemoryStore(), MemoryStore(), MemoryBlobs()
    for _ in range(2):
        await claim_blobs(store, blobs, "s3://bucket/one")
    with pytest.raises(CellError, match=r"in s3://bucket/one belong to another cell.*another prefix"):
        await claim_blobs(other, blobs, "s3://bucket/one")
    await claim_blobs(other, MemoryBlobs(), "s3://bucket/two")
    await blobs.remove(KEY)
    await claim_blobs(other, blobs, "s3://bucket/one")
