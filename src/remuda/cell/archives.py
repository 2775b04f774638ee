"""What is in a stored archive, and one file out of it, streamed.

Decided here: which entries of an archive can be had (ordinary files, stored or deflated) and how much of an archive is
looked at to find one: its directory, up to a limit, and the entry itself. `remuda.cell.http.artifacts` calls it, and
whoever needs a file that a job left, such as the pipeline file of a child.
"""

import asyncio
import stat
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO, TypeVar

import msgspec

from remuda.cell.errors import InvalidError, NotFoundError, TooLargeError
from remuda.cell.ports import Blobs

T = TypeVar("T")

DIRECTORY_LIMIT_BYTES = 16 * 1024 * 1024
"""The list of an archive's entries is read whole; one that is larger is refused."""

_PIECE_BYTES = 256 * 1024
_WAYS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive's directory says of one of its entries."""

    path: str
    size: int
    packed_size: int
    is_folder: bool = False


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A file in an archive that can be read."""

    blob: str
    path: str
    size: int


async def list_entries(blobs: Blobs, blob: str) -> list[Listed]:
    """Everything in an archive, in the order in which it was packed; InvalidError when it cannot be read."""

    def entries() -> list[Listed]:
        with blobs.opened(blob) as file, _archive(file) as archive:
            return [
                Listed(path=one.filename, size=one.file_size, packed_size=one.compress_size, is_folder=one.is_dir())
                for one in archive.infolist()
            ]

    return await _plainly(entries)


async def find_entry(blobs: Blobs, blob: str, path: str) -> Entry:
    """The file of this path; NotFoundError when there is none, InvalidError when it cannot be read."""

    def find() -> int:
        with blobs.opened(blob) as file, _archive(file) as archive, archive.open(_entry(archive, path)):
            return archive.getinfo(path).file_size

    return Entry(blob=blob, path=path, size=await _plainly(find))


async def read_entry(blobs: Blobs, entry: Entry) -> AsyncIterator[bytes]:
    """Its bytes; InvalidError where they are damaged."""
    with await _plainly(lambda: blobs.opened(entry.blob)) as file:
        archive = await _plainly(lambda: _archive(file))
        with archive, await _plainly(lambda: archive.open(_entry(archive, entry.path))) as content:
            while piece := await _plainly(lambda: content.read(_PIECE_BYTES)):
                yield piece


async def small_entry(blobs: Blobs, blob: str, path: str, *, limit_bytes: int) -> bytes:
    """A whole file that is wanted at once; TooLargeError beyond the limit."""
    entry = await find_entry(blobs, blob, path)
    if entry.size > limit_bytes:
        raise TooLargeError(f"{path} in the archive is larger than {limit_bytes} bytes")
    return b"".join([piece async for piece in read_entry(blobs, entry)])


def _archive(file: BinaryIO) -> zipfile.ZipFile:
    return zipfile.ZipFile(_Bounded(file))


def _entry(archive: zipfile.ZipFile, path: str) -> zipfile.ZipInfo:
    try:
        info = archive.getinfo(path)
    except KeyError:
        raise NotFoundError(f"{path} is not in the archive") from None
    mode = info.external_attr >> 16
    if info.is_dir() or stat.S_ISLNK(mode):
        raise NotFoundError(f"{path} in the archive is no file")
    if info.compress_type not in _WAYS or info.flag_bits & 1:
        raise InvalidError(f"{path} is packed in a way that is not read here; download the whole archive")
    return info


async def _plainly(work: Callable[[], T]) -> T:
    """Do it in a thread; what an archive can be guilty of is InvalidError."""
    try:
        return await asyncio.to_thread(work)
    except (zipfile.BadZipFile, NotImplementedError, zlib.error, EOFError, ValueError, OverflowError) as error:
        raise InvalidError(f"the archive cannot be read: {error}") from None


class _Bounded:
    """A file of which nobody reads very much at once, whatever the archive says of its directory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, DIRECTORY_LIMIT_BYTES + 1) if size >= 0 else DIRECTORY_LIMIT_BYTES + 1)
        if len(data) > DIRECTORY_LIMIT_BYTES:
            raise zipfile.BadZipFile("its directory is too large; download the whole archive")
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Whoever opened the file closes it."""
