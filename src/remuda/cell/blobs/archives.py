"""Lists the entries of a stored zip archive, and streams one file out of it.

Only ordinary files can be read, and only if they are stored without compression or deflated; if two have the same name,
the last one is used. The list of all entries is never in memory: the central directory is scanned in a thread, up to a
limit, and whoever reads a file holds one file descriptor and one piece of the file."""

import asyncio
import stat
import struct
import zipfile
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import BinaryIO, Protocol, TypeVar

import msgspec

from remuda.cell.blobs.port import Blobs
from remuda.cell.blobs.zip_directory import ZipEntry, find_data, scan_directory
from remuda.cell.errors import InvalidError, NotFoundError, TooLargeError

T = TypeVar("T")

MOST_IN_FOLDER = 2000
LIMIT_ENTRIES = 1_000_000
"""The default; the cell's settings have their own limit."""
_PIECE_BYTES = 256 * 1024
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    size: int
    packed_size: int
    is_folder: bool = False


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder of an archive contains. Sizes of folders are those of all files below them."""

    entries: tuple[Listed, ...]
    """Folders first, then by name; at most MOST_IN_FOLDER."""
    left_out: int
    """Number of further entries."""
    files: int
    """Number of files in the folder and below it."""
    size: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A readable file in a zip archive. `blob` is the key under which the archive is stored."""

    blob: str
    zip_entry: ZipEntry

    @property
    def size(self) -> int:
        return self.zip_entry.size


class Run(Protocol):
    """A function that runs blocking work in a thread, such as `asyncio.to_thread`."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


async def list_entries(
    blobs: Blobs, blob: str, *, first: int, count: int, limit_entries: int = LIMIT_ENTRIES, run: Run = asyncio.to_thread
) -> tuple[list[Listed], int]:
    """Return up to `count` entries of the archive with the key `blob`, from the index `first` (from 0) on, and the
    number of all. Raises InvalidError if the archive is damaged or has more than `limit_entries`."""

    def find() -> tuple[list[Listed], int]:
        listed: list[Listed] = []
        total = 0
        with blobs.open(blob) as file:
            for total, entry in enumerate(scan_directory(file, limit_entries=limit_entries), 1):
                if first < total <= first + count:
                    listed.append(
                        Listed(
                            path=entry.name,
                            size=entry.size,
                            packed_size=entry.packed_size,
                            is_folder=entry.is_folder,
                        )
                    )
        return listed, total

    return await _run_on_archive(find, run)


async def list_folder(
    blobs: Blobs, blob: str, folder: str, *, limit_entries: int = LIMIT_ENTRIES, run: Run = asyncio.to_thread
) -> Folder:
    """List what is directly in a folder of the archive with the key `blob`; `folder` is empty or ends with a slash.
    Raises NotFoundError if the archive has no such folder, InvalidError if it is damaged or too large."""

    def find() -> Folder | None:
        children: dict[str, list[int]] = {}
        names_left_out: set[int] = set()
        files = size = 0
        is_known = not folder
        with blobs.open(blob) as file:
            for entry in scan_directory(file, limit_entries=limit_entries):
                if not entry.name.startswith(folder):
                    continue
                is_known = True
                name, slash, _ = entry.name[len(folder) :].partition("/")
                if not entry.is_folder:
                    files, size = files + 1, size + entry.size
                if not (name or slash):
                    continue
                if name + slash not in children and len(children) >= MOST_IN_FOLDER:
                    names_left_out.add(hash(name + slash))
                    continue
                sizes = children.setdefault(name + slash, [0, 0])
                sizes[0] += entry.size
                sizes[1] += entry.packed_size
        if not is_known:
            return None
        entries = [
            Listed(path=folder + name, size=sizes[0], packed_size=sizes[1], is_folder=name.endswith("/"))
            for name, sizes in children.items()
        ]
        entries.sort(key=lambda entry: (not entry.is_folder, entry.path))
        return Folder(entries=tuple(entries), left_out=len(names_left_out), files=files, size=size)

    found = await _run_on_archive(find, run)
    if found is None:
        raise NotFoundError(f"the archive has no folder {folder}")
    return found


async def find_entry(
    blobs: Blobs, blob: str, path: str, *, limit_entries: int = LIMIT_ENTRIES, run: Run = asyncio.to_thread
) -> Entry:
    """Find the file with this path in the archive with the key `blob`. Raises NotFoundError if there is none,
    InvalidError if the archive or the file cannot be read."""

    def find() -> ZipEntry:
        last: ZipEntry | None = None
        with blobs.open(blob) as file:
            for entry in scan_directory(file, limit_entries=limit_entries):
                if entry.name == path:
                    last = entry
            if last is None:
                raise NotFoundError(f"{path} is not in the archive")
            _check(last)
            find_data(file, last)
        return last

    return Entry(blob=blob, zip_entry=await _run_on_archive(find, run))


async def read_entry(blobs: Blobs, entry: Entry) -> AsyncGenerator[bytes, None]:
    """Yield the decompressed bytes of a file in an archive. Raises InvalidError if the bytes are damaged."""
    with await _run_on_archive(lambda: blobs.open(entry.blob)) as file:
        pieces = _unpack(file, entry.zip_entry)
        while piece := await _run_on_archive(lambda: next(pieces, b"")):
            yield piece


async def read_small_entry(blobs: Blobs, blob: str, path: str, *, limit_bytes: int) -> bytes:
    """Read a file of an archive (`blob`: its key). Raises TooLargeError, or NotFoundError if the file is missing."""
    entry = await find_entry(blobs, blob, path)
    if entry.size > limit_bytes:
        raise TooLargeError(f"{path} in the archive is larger than {limit_bytes} bytes")
    return b"".join([piece async for piece in read_entry(blobs, entry)])


def _check(entry: ZipEntry) -> None:
    if entry.is_folder or stat.S_ISLNK(entry.mode):
        raise NotFoundError(f"{entry.name} in the archive is no file")
    if entry.method not in _METHODS or entry.flags & 1:
        raise InvalidError(f"{entry.name} is packed in a way that cannot be read here; download the whole archive")


def _unpack(file: BinaryIO, entry: ZipEntry) -> Iterator[bytes]:
    """Yield the decompressed bytes of an entry. Raises BadZipFile if size or checksum are not as the archive says."""
    file.seek(find_data(file, entry))
    crc, size = 0, 0
    for piece in _inflate(file, entry.packed_size) if entry.method else _pieces(file, entry.packed_size):
        crc, size = zlib.crc32(piece, crc), size + len(piece)
        if size > entry.size:
            raise zipfile.BadZipFile(f"{entry.name!r} is larger than its directory says")
        yield piece
    if size != entry.size or crc != entry.crc:
        raise zipfile.BadZipFile(f"{entry.name!r} is damaged")


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        piece = file.read(min(size, _PIECE_BYTES))
        if not piece:
            raise zipfile.BadZipFile("it ends too early")
        size -= len(piece)
        yield piece


def _inflate(file: BinaryIO, size: int) -> Iterator[bytes]:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    for packed in _pieces(file, size):
        while not stream.eof and (packed or stream.unconsumed_tail):
            piece = stream.decompress(stream.unconsumed_tail or packed, _PIECE_BYTES)
            packed = b""
            if piece:
                yield piece
    if rest := stream.flush():
        yield rest


async def _run_on_archive(work: Callable[[], T], run: Run = asyncio.to_thread) -> T:
    """Run `work`, which reads an archive, in a thread. Errors of a damaged archive are raised as InvalidError."""
    try:
        return await run(work)
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, OverflowError) as error:
        raise InvalidError(f"the archive cannot be read: {error}") from None
