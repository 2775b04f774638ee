"""Contract tests of the Blobs port, run against every adapter."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.cell.blobs.port import Blobs
from remuda.cell.errors import NotFoundError, TooLargeError

LIMIT = 10_000_000


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def read(blobs: Blobs, key: str, start: int = 0) -> bytes:
    return b"".join([piece async for piece in blobs.read(key, start)])


async def test_read_returns_what_was_put(blobs: Blobs) -> None:
    data = [bytes([number]) * 700_000 for number in range(5)]
    whole = b"".join(data)
    size, sha256 = await blobs.put("artifacts/1/archive.zip", pieces(*data), limit_bytes=LIMIT)
    assert (size, sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
    assert await blobs.size("artifacts/1/archive.zip") == len(whole)
    assert await read(blobs, "artifacts/1/archive.zip") == whole


async def test_an_open_blob_is_seekable(blobs: Blobs) -> None:
    await blobs.put("some", pieces(b"0123456789"), limit_bytes=LIMIT)
    with blobs.open("some") as file:
        assert file.seek(-3, 2) == 7
        assert file.read(2) == b"78"
        assert file.seek(1) == 1
        assert file.read(3) == b"123"
    with pytest.raises(NotFoundError):
        blobs.open("other")


async def test_an_empty_blob_can_be_stored(blobs: Blobs) -> None:
    assert await blobs.put("empty", pieces(), limit_bytes=0) == (0, hashlib.sha256().hexdigest())
    assert await blobs.size("empty") == 0
    assert await read(blobs, "empty") == b""


async def test_the_limit_is_exact_and_leaves_nothing_behind(blobs: Blobs) -> None:
    await blobs.put("fits", pieces(b"x" * 5, b"y" * 5), limit_bytes=10)
    with pytest.raises(TooLargeError, match="10 bytes"):
        await blobs.put("large", pieces(b"x" * 5, b"y" * 6), limit_bytes=10)
    assert await blobs.size("large") is None


async def test_an_aborted_upload_keeps_the_old_content(blobs: Blobs) -> None:
    async def aborted_upload() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionAbortedError

    await blobs.put("key", pieces(b"whole"), limit_bytes=LIMIT)
    with pytest.raises(ConnectionAbortedError):
        await blobs.put("key", aborted_upload(), limit_bytes=LIMIT)
    assert await read(blobs, "key") == b"whole"


async def test_missing_keys(blobs: Blobs) -> None:
    await blobs.put("a", pieces(b"1"), limit_bytes=LIMIT)
    for key in ("none", "a/b"):
        assert await blobs.size(key) is None
        with pytest.raises(NotFoundError):
            await read(blobs, key)
    await blobs.remove("none")


async def test_a_removed_blob_is_gone(blobs: Blobs) -> None:
    await blobs.put("a/b", pieces(b"1"), limit_bytes=LIMIT)
    await blobs.remove("a/b")
    assert await blobs.size("a/b") is None


async def test_read_from_any_offset(blobs: Blobs) -> None:
    await blobs.put("some", pieces(b"x" * 5_000_000, b"end"), limit_bytes=LIMIT)
    assert await read(blobs, "some", 4_999_999) == b"xend"
    assert await read(blobs, "some", 5_000_003) == b""
    assert await read(blobs, "some", 9_000_000) == b""


async def test_take_moves_a_file_into_the_store(blobs: Blobs, tmp_path: Path) -> None:
    for content in (b"one", b"", b"x" * 9_000_000):
        file = tmp_path / "file"
        file.write_bytes(content)
        await blobs.take("traces/0/1.log", file)
        assert not file.exists()
        assert await read(blobs, "traces/0/1.log") == content


async def test_list_below_lists_the_keys_of_a_folder(blobs: Blobs) -> None:
    for key in ("a/1/x", "a/1/y", "a/2/x", "ab/1", "b"):
        await blobs.put(key, pieces(b"1"), limit_bytes=LIMIT)
    await blobs.remove("a/2/x")
    listed = [blob async for blob in blobs.list_below("a")]
    assert {blob.key for blob in listed} == {"a/1/x", "a/1/y"}
    assert all(blob.modified_at > 1_700_000_000 for blob in listed)
    assert [blob async for blob in blobs.list_below("none")] == []
