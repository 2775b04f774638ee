import io
import stat
import zipfile
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.cell import archives
from remuda.cell.adapters.memory_bytes import MemoryBlobs
from remuda.cell.archives import find_entry, read_entry, small_entry
from remuda.cell.errors import InvalidError, NotFoundError, TooLargeError


def packed(files: dict[str, bytes], way: int = zipfile.ZIP_DEFLATED) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", way) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return whole.getvalue()


async def stored(content: bytes) -> MemoryBlobs:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    blobs = MemoryBlobs()
    await blobs.put("a", pieces(), limit_bytes=10**9)
    return blobs


@pytest.mark.parametrize("way", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
async def test_a_file_comes_out_in_pieces(way: int) -> None:
    content = bytes(range(256)) * 4000
    blobs = await stored(packed({"out/big": content, "out/other": b"x"}, way))
    entry = await find_entry(blobs, "a", "out/big")
    found = [piece async for piece in read_entry(blobs, entry)]
    assert (entry.size, b"".join(found)) == (len(content), content)
    assert max(len(piece) for piece in found) <= 256 * 1024


async def test_what_is_not_there() -> None:
    folder = zipfile.ZipInfo("folder/")
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr(folder, b"")
        archive.writestr(link, b"/etc/passwd")
    blobs = await stored(whole.getvalue())
    for path in ("missing", "../missing", "folder/", "link", "", "folder"):
        with pytest.raises(NotFoundError):
            await find_entry(blobs, "a", path)
    with pytest.raises(NotFoundError):
        await find_entry(blobs, "other", "x")


async def test_what_cannot_be_read() -> None:
    for content in (b"", b"no zip at all", packed({"f": b"x" * 100})[:-1], packed({"f": b"x"}, zipfile.ZIP_BZIP2)):
        with pytest.raises(InvalidError):
            await find_entry(await stored(content), "a", "f")


async def test_a_directory_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "DIRECTORY_LIMIT_BYTES", 70_000)
    blobs = await stored(packed({f"file{number}": b"" for number in range(2000)}))
    with pytest.raises(InvalidError, match="directory is too large"):
        await find_entry(blobs, "a", "file1")


async def test_a_small_file_at_once() -> None:
    blobs = await stored(packed({"f": b"x" * 100}))
    assert await small_entry(blobs, "a", "f", limit_bytes=100) == b"x" * 100
    with pytest.raises(TooLargeError):
        await small_entry(blobs, "a", "f", limit_bytes=99)


_WHOLE = packed({"f": b"content" * 20, "g": b"more"})


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(_WHOLE) - 1), st.integers(0, 255))
async def test_a_damaged_archive_never_brings_it_down(at: int, value: int) -> None:
    blobs = await stored(_WHOLE[:at] + bytes([value]) + _WHOLE[at + 1 :])
    try:
        entry = await find_entry(blobs, "a", "f")
        content = b"".join([piece async for piece in read_entry(blobs, entry)])
    except (InvalidError, NotFoundError):
        return
    assert content == b"content" * 20
