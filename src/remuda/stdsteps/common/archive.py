"""Writes and unpacks zip archives of artifacts and caches. They are reproducible: the same files give the same bytes
(sorted names, the files' own times), so that a repeated upload is recognised.

An archive comes from another job and is not trusted. Entry names that lead out of the folder, and contents above a
limit, are refused. Entries below `.git` are skipped, because git would run programs that they configure. Links are
created last, and nothing is written through a link. A file replaced by a link while it is packed is an error."""

import calendar
import lzma
import os
import shutil
import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, cast

from remuda.lib.safe_paths import open_inside
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.log import say

LARGEST_BYTES = 16 * 1024**3
"""Unpacked size above which an archive is refused."""
LARGEST_DIRECTORY_BYTES = 64 * 1024**2
"""Largest central directory: `zipfile` reads it as a whole, and every entry takes a kilobyte of memory."""
MOST_ENTRIES = 1_000_000
LONGEST_LINK_BYTES = 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_EARLIEST, _LATEST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)
_TIMES = 0x5455
"""The extra field with a time in seconds since 1970; the format's own field has steps of two seconds."""
_END, END_BYTES = b"PK\5\6", 22
"""Signature and length of an archive's last record; its last two bytes are the length of the comment after it."""
_CHUNK = 256 * 1024
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    NotImplementedError,
    RuntimeError,
    ValueError,
    EOFError,
)
"""Exceptions of `zipfile` for data that is not a readable archive."""


class DamagedArchiveError(StepError):
    """Raised if a file is not a readable zip archive."""


def write_zip(
    output: Path, root: Path, names: Iterable[str], *, comment: bytes = b"", level: int | None = None
) -> None:
    """Write an archive of files, folders and links; `names` are relative to `root`. Leaves out sockets, pipes and
    devices. `comment`: the comment of the archive. `level`: the zlib compression level."""
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=level) as archive:
        archive.comment = comment
        for name in sorted(names):
            path = root / name
            status = path.lstat()
            moment = min(max(time.gmtime(status.st_mtime)[:6], _EARLIEST), _LATEST)
            is_folder = stat.S_ISDIR(status.st_mode)
            entry = zipfile.ZipInfo(name + "/" if is_folder else name, moment)
            entry.external_attr = (status.st_mode & 0xFFFF) << 16 | (0x10 if is_folder else 0)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.extra = struct.pack("<HHBl", _TIMES, 5, 1, _clamp_seconds(status.st_mtime))
            if is_folder:
                archive.writestr(entry, b"", zipfile.ZIP_STORED)
            elif stat.S_ISLNK(status.st_mode):
                archive.writestr(entry, os.fsencode(os.readlink(path)), zipfile.ZIP_STORED)
            elif stat.S_ISREG(status.st_mode):
                entry.file_size = status.st_size
                with open(open_inside(root, name), "rb") as source, _open_entry(archive, entry) as target:
                    shutil.copyfileobj(source, target, _CHUNK)


def unpack_zip(source: Path, root: Path, *, largest_bytes: int = LARGEST_BYTES, whole: bool = False) -> int:
    """Unpack an archive into `root` and return the number of unpacked entries. `largest_bytes`: limit for all unpacked
    files together. `whole`: skip only entries of a top-level `.git`, instead of any `.git`; and if unpacking fails,
    delete the files and links that were unpacked, which otherwise stay. Raises DamagedArchiveError if the archive
    cannot be read, StepError if an entry is refused."""
    remaining = largest_bytes
    links: list[zipfile.ZipInfo] = []
    written: list[tuple[str, ...]] = []
    skipped: list[str] = []
    count = 0
    try:
        with open_zip(source) as archive:
            for entry in archive.infolist():
                parts = _split_name(entry.filename)
                if any(part.lower() == ".git" for part in (parts[:1] if whole else parts)):
                    skipped.append(entry.filename)
                    continue
                count += 1
                if entry.is_dir():
                    with _open_folder(root, parts):
                        pass
                elif stat.S_ISLNK(entry.external_attr >> 16):
                    links.append(entry)
                else:
                    written.append(parts)
                    remaining = _unpack_file(archive, entry, root, parts, remaining)
            for entry in links:
                written.append(_split_name(entry.filename))
                _unpack_link(archive, entry, root, written[-1])
    except BaseException as error:
        if whole:
            _remove_entries(root, written)
        if isinstance(error, _DAMAGE):
            raise DamagedArchiveError(f"the archive is damaged or has an unknown format: {error}") from None
        raise
    if skipped:
        say(f"WARNING: skipped {len(skipped)} entries of the archive inside .git folders, such as {skipped[0]!r}")
    return count


@contextmanager
def open_zip(source: Path | IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open an archive. Raises StepError if it has too many entries or its central directory is too large."""
    with ExitStack() as opened:
        file = opened.enter_context(source.open("rb")) if isinstance(source, Path) else source
        archive = opened.enter_context(zipfile.ZipFile(cast("IO[bytes]", _Bounded(file))))
        if len(archive.filelist) > MOST_ENTRIES:
            raise StepError(f"the archive has more than {MOST_ENTRIES} entries; pack fewer files")
        yield archive


class _Bounded:
    """A file whose `read` raises StepError for huge sizes: `zipfile` reads the whole central directory at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size > LARGEST_DIRECTORY_BYTES:
            raise StepError(
                f"the archive's list of entries is larger than {LARGEST_DIRECTORY_BYTES} bytes; pack fewer files"
            )
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: the code that opened the file closes it."""


def has_comment(path: Path, comment: bytes) -> bool:
    """True if the archive has this comment. Reads only the end of the file."""
    try:
        with path.open("rb") as file:
            file.seek(-END_BYTES - len(comment), os.SEEK_END)
            return is_end(file.read(), comment)
    except OSError:
        return False


def is_end(data: bytes, comment: bytes) -> bool:
    """True if `data` is the end-of-central-directory record of a zip archive with this comment."""
    return data.startswith(_END) and data[END_BYTES - 2 :] == struct.pack("<H", len(comment)) + comment


@contextmanager
def _open_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    try:
        with archive.open(entry, "w") as target:
            yield target
    except RuntimeError:
        raise StepError(f"{entry.filename!r} grew while it was packed; stop the process that writes to it") from None


def _split_name(name: str) -> tuple[str, ...]:
    """Split the path of an archive entry at slashes. Raises StepError if it is empty, absolute or contains `..`."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in name.replace("\\", "/").split("/") or not pure.parts:
        raise StepError(f"the archive contains {name!r}, which is not a relative path without ..; unpacking stops here")
    return pure.parts


@contextmanager
def _open_folder(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """Yield the descriptor of a folder below `root`, which is created if missing; closes it at the end of the `with`
    block. Raises StepError if a part of the path is a link or a file."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            try:
                inner = os.open(part, _FOLDER, dir_fd=folder)
            except NotADirectoryError:
                raise StepError(
                    f"the archive contains the folder {'/'.join(parts)!r}, but {part!r} is a link or a file in the "
                    "working directory; unpacking stops here"
                ) from None
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _unpack_file(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, root: Path, parts: tuple[str, ...], remaining: int
) -> int:
    with _open_folder(root, parts[:-1]) as folder:
        _clear(folder, parts[-1])
        descriptor = os.open(parts[-1], _NEW_FILE, 0o666, dir_fd=folder)
    with open(descriptor, "wb") as file, archive.open(entry) as packed:
        while chunk := packed.read(_CHUNK):
            remaining -= len(chunk)
            if remaining < 0:
                raise StepError("the unpacked size of the archive is larger than allowed; unpacking stops here")
            file.write(chunk)
        if permissions := stat.S_IMODE(entry.external_attr >> 16) & 0o777:
            os.fchmod(descriptor, permissions)
        file.flush()
        if (moment := _read_time(entry)) is not None:
            os.utime(descriptor, (moment, moment))
    return remaining


def _unpack_link(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, root: Path, parts: tuple[str, ...]) -> None:
    target = archive.read(entry) if entry.file_size < LONGEST_LINK_BYTES else b""
    if not target or b"\0" in target:
        raise StepError(f"the archive contains the link {entry.filename!r} with an invalid target")
    with _open_folder(root, parts[:-1]) as folder:
        _clear(folder, parts[-1])
        os.symlink(target, os.fsencode(parts[-1]), dir_fd=folder)


def _clear(folder: int, name: str) -> None:
    """Delete an existing file or link `name` in a folder, so that an archive entry can take its place. Raises StepError
    if `name` is a folder. `folder`: the descriptor of the folder."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise StepError(f"the archive contains a file {name!r} where the working directory has a folder")
        os.unlink(name, dir_fd=folder)


def _remove_entries(root: Path, written: Iterable[tuple[str, ...]]) -> None:
    for parts in written:
        with suppress(OSError, StepError), _open_folder(root, parts[:-1]) as folder:
            os.unlink(parts[-1], dir_fd=folder)


def _read_time(entry: zipfile.ZipInfo) -> int | None:
    """Return the modification time in seconds since 1970, from the extra field or else the entry's date; None if the
    date is invalid."""
    offset = 0
    while offset + 9 <= len(entry.extra):
        kind, size, flags, seconds = struct.unpack_from("<HHBl", entry.extra, offset)
        if kind == _TIMES and size >= 5 and flags & 1:
            return int(seconds)
        offset += 4 + size
    try:
        return calendar.timegm((*entry.date_time, 0, 0, 0))
    except ValueError:
        return None


def _clamp_seconds(moment: float) -> int:
    """Limit a time to the signed 32-bit range of the zip field for modification times."""
    return min(max(int(moment), -(2**31)), 2**31 - 1)
