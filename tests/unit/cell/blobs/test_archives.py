"""Reading single files from zip archives in blob storage, with limits and damaged archives."""

import contextlib
import io
import stat
import warnings
import zipfile
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.cell.blobs import zip_directory
from remuda.cell.blobs.archives import find_entry, list_entries, list_folder, read_entry, read_small_entry
from remuda.cell.blobs.memory import MemoryBlobs
from remuda.cell.errors import InvalidError, NotFoundError, TooLargeError


def pack(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


async def store_blob(content: bytes) -> MemoryBlobs:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    blobs = MemoryBlobs()
    await blobs.put("a", pieces(), limit_bytes=10**9)
    return blobs


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
async def test_a_file_is_read_in_pieces(compression: int) -> None:
    content = bytes(range(256)) * 4000
    blobs = await store_blob(pack({"out/big": content, "out/other": b"x"}, compression))
    entry = await find_entry(blobs, "a", "out/big")
    pieces = [piece async for piece in read_entry(blobs, entry)]
    assert (entry.size, b"".join(pieces)) == (len(content), content)
    assert max(len(piece) for piece in pieces) <= 256 * 1024


async def test_missing_files_folders_and_links_are_not_found() -> None:
    folder = zipfile.ZipInfo("folder/")
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(folder, b"")
        archive.writestr(link, b"/etc/passwd")
    blobs = await store_blob(buffer.getvalue())
    for path in ("missing", "../missing", "folder/", "link", "", "folder"):
        with pytest.raises(NotFoundError):
            await find_entry(blobs, "a", path)
    with pytest.raises(NotFoundError):
        await find_entry(blobs, "other", "x")


async def test_invalid_archives() -> None:
    for content in (b"", b"no zip at all", pack({"f": b"x" * 100})[:-1], pack({"f": b"x"}, zipfile.ZIP_BZIP2)):
        with pytest.raises(InvalidError):
            await find_entry(await store_blob(content), "a", "f")


async def test_a_too_large_directory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_directory, "DIRECTORY_LIMIT_BYTES", 70_000)
    blobs = await store_blob(pack({f"file{number}": b"" for number in range(2000)}))
    with pytest.raises(InvalidError, match="directory is larger than 70000 bytes"):
        await find_entry(blobs, "a", "file1")


async def test_too_many_entries_are_refused_and_counted() -> None:
    blobs = await store_blob(pack({f"file{number}": b"" for number in range(20)}))
    with pytest.raises(InvalidError, match="more than 19 entries"):
        await find_entry(blobs, "a", "file1", limit_entries=19)
    listed, total = await list_entries(blobs, "a", first=18, count=5)
    assert ([entry.path for entry in listed], total) == (["file18", "file19"], 20)


async def test_a_folder_lists_what_is_directly_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = await store_blob(pack({"a.txt": b"1", "out/x": b"22", "out/deep/y": b"333", "empty/": b"", "/abs": b"4"}))
    top = await list_folder(blobs, "a", "")
    assert [(entry.path, entry.size, entry.is_folder) for entry in top.entries] == [
        ("/", 1, True),
        ("empty/", 0, True),
        ("out/", 5, True),
        ("a.txt", 1, False),
    ]
    assert (top.files, top.size, top.left_out) == (4, 7, 0)
    inner = await list_folder(blobs, "a", "out/")
    assert [(entry.path, entry.size) for entry in inner.entries] == [("out/deep/", 3), ("out/x", 2)]
    assert (await list_folder(blobs, "a", "empty/")).entries == ()
    with pytest.raises(NotFoundError):
        await list_folder(blobs, "a", "ou/")
    monkeypatch.setattr("remuda.cell.blobs.archives.MOST_IN_FOLDER", 2)
    cut = await list_folder(blobs, "a", "")
    assert (len(cut.entries), cut.left_out, cut.files) == (2, 2, 4)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        # Python cannot tell whether an entry with an empty name is a folder.
        st.tuples(st.text(min_size=1, max_size=20).filter(lambda name: name[0] != "\0"), st.binary(max_size=200)),
        max_size=8,
    ),
    st.binary(max_size=100),
    st.binary(max_size=100),
)
async def test_archive_is_read_as_by_zipfile(files: list[tuple[str, bytes]], before: bytes, comment: bytes) -> None:
    buffer = io.BytesIO()
    buffer.write(before)
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as writer:
        for name, content in files:
            with contextlib.suppress(UnicodeEncodeError):
                writer.writestr(zipfile.ZipInfo(name), content)
        writer.comment = comment
    try:
        with zipfile.ZipFile(buffer) as archive:
            expected = {info.filename: archive.read(info.filename) for info in archive.infolist() if not info.is_dir()}
            names = [info.filename for info in archive.infolist()]
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError):
        return
    blobs = await store_blob(buffer.getvalue())
    listed, total = await list_entries(blobs, "a", first=0, count=100)
    assert ([entry.path for entry in listed], total) == (names, len(names))
    for name, content in expected.items():
        entry_content = b"".join([piece async for piece in read_entry(blobs, await find_entry(blobs, "a", name))])
        assert entry_content == content


async def test_zip64_sizes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    blobs = await store_blob(pack({"a": b"x" * 100, "b": b"y" * 1000}))
    monkeypatch.undo()
    assert await read_small_entry(blobs, "a", "b", limit_bytes=1000) == b"y" * 1000


async def test_an_entry_that_is_larger_than_declared_is_refused() -> None:
    archive = bytearray(pack({"f": bytes(10_000_000)}))
    directory = archive.rindex(b"PK\1\2")
    archive[directory + 24 : directory + 28] = (100).to_bytes(4, "little")
    blobs = await store_blob(bytes(archive))
    with pytest.raises(InvalidError, match="larger than its directory says"):
        await read_small_entry(blobs, "a", "f", limit_bytes=1000)


async def test_a_small_file_is_read_as_a_whole() -> None:
    blobs = await store_blob(pack({"f": b"x" * 100}))
    assert await read_small_entry(blobs, "a", "f", limit_bytes=100) == b"x" * 100
    with pytest.raises(TooLargeError):
        await read_small_entry(blobs, "a", "f", limit_bytes=99)


_ARCHIVE = pack({"f": b"content" * 20, "g": b"more"})


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(_ARCHIVE) - 1), st.integers(0, 255))
async def test_a_damaged_archive_gives_an_error_or_the_right_content(offset: int, value: int) -> None:
    blobs = await store_blob(_ARCHIVE[:offset] + bytes([value]) + _ARCHIVE[offset + 1 :])
    try:
        entry = await find_entry(blobs, "a", "f")
        content = b"".join([piece async for piece in read_entry(blobs, entry)])
    except (InvalidError, NotFoundError):
        return
    assert content == b"content" * 20
