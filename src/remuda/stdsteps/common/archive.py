"""Zip archives of artifacts and caches: made the same way every time, unpacked without trust.

The same files give the same bytes (sorted names, the files' own times), so that a repeated upload is recognised.
An archive comes from another job and may say anything: names that lead out of the folder and contents that grow
without end are refused, and what belongs to the working directory's git repository is left out, because git takes
orders from there. Permissions and times of files are kept; times to the second.

What is packed lies in the working directory: a file that a job replaces by a link meanwhile is an error.
Links are made as they are, wherever they lead, but last, and nothing is ever written through one, be it from the
archive or from the working directory: every folder on the way to an entry is opened without following links.
"""

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
"""The list of an archive's entries above which it is refused: it is read whole, and every entry takes a kilobyte."""
MOST_ENTRIES = 1_000_000
LONGEST_LINK_BYTES = 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_EARLIEST, _LATEST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)
_TIMES = 0x5455
"""The extra field with a time in seconds since 1970; the archive's own format counts in steps of two seconds."""
_END, END_BYTES = b"PK\5\6", 22
"""How an archive's last record begins, and how long it is; its last two bytes are the length of what follows."""
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
"""What reading an archive that is none comes to."""


class DamagedArchiveError(StepError):
    """The bytes are no archive that can be read."""


def write_zip(
    output: Path, root: Path, names: Iterable[str], *, comment: bytes = b"", level: int | None = None
) -> None:
    """Files, folders and links of these names, relative to the root."""
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
            entry.extra = struct.pack("<HHBl", _TIMES, 5, 1, _seconds(status.st_mtime))
            if is_folder:
                archive.writestr(entry, b"", zipfile.ZIP_STORED)
            elif stat.S_ISLNK(status.st_mode):
                archive.writestr(entry, os.fsencode(os.readlink(path)), zipfile.ZIP_STORED)
            elif stat.S_ISREG(status.st_mode):
                entry.file_size = status.st_size
                with open(open_inside(root, name), "rb") as source, _room_for(archive, entry) as target:
                    shutil.copyfileobj(source, target, _CHUNK)


def unpack_zip(source: Path, root: Path, *, largest_bytes: int = LARGEST_BYTES, whole: bool = False) -> int:
    """Put an archive's files below the root; how many.

    `whole`: all of it or nothing, repositories further down included. Otherwise what was unpacked before a failure
    stays, and everything named .git is left out.
    """
    left = largest_bytes
    links: list[zipfile.ZipInfo] = []
    made: list[tuple[str, ...]] = []
    skipped: list[str] = []
    count = 0
    try:
        with open_zip(source) as archive:
            for entry in archive.infolist():
                parts = _parts(entry.filename)
                if any(part.lower() == ".git" for part in (parts[:1] if whole else parts)):
                    skipped.append(entry.filename)
                    continue
                count += 1
                if entry.is_dir():
                    with _opened(root, parts):
                        pass
                elif stat.S_ISLNK(entry.external_attr >> 16):
                    links.append(entry)
                else:
                    made.append(parts)
                    left = _unpack_file(archive, entry, root, parts, left)
            for entry in links:
                made.append(_parts(entry.filename))
                _unpack_link(archive, entry, root, made[-1])
    except BaseException as error:
        if whole:
            _take_back(root, made)
        if isinstance(error, _DAMAGE):
            raise DamagedArchiveError(f"the archive is damaged or of an unknown kind: {error}") from None
        raise
    if skipped:
        say(
            f"WARNING: the archive holds {len(skipped)} entries of git repositories, like {skipped[0]!r}; "
            "they are left out"
        )
    return count


@contextmanager
def open_zip(source: Path | IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """An archive to read, unless its list of entries is too large for the memory of whoever reads it."""
    with ExitStack() as opened:
        file = opened.enter_context(source.open("rb")) if isinstance(source, Path) else source
        archive = opened.enter_context(zipfile.ZipFile(cast("IO[bytes]", _Bounded(file))))
        if len(archive.filelist) > MOST_ENTRIES:
            raise StepError(f"the archive has more than {MOST_ENTRIES} entries; pack fewer files")
        yield archive


class _Bounded:
    """A file of which nobody reads very much at once: `zipfile` reads the list of entries in one piece."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size > LARGEST_DIRECTORY_BYTES:
            raise StepError(
                f"the list of the archive's entries is larger than {LARGEST_DIRECTORY_BYTES} bytes; pack fewer files"
            )
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Whoever opened the file closes it."""


def has_comment(path: Path, comment: bytes) -> bool:
    """Whether an archive was written with this comment; its entries are not looked at."""
    try:
        with path.open("rb") as file:
            file.seek(-END_BYTES - len(comment), os.SEEK_END)
            return is_end(file.read(), comment)
    except OSError:
        return False


def is_end(data: bytes, comment: bytes) -> bool:
    """Whether these are the last bytes of an archive with this comment."""
    return data.startswith(_END) and data[END_BYTES - 2 :] == struct.pack("<H", len(comment)) + comment


@contextmanager
def _room_for(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    try:
        with archive.open(entry, "w") as target:
            yield target
    except RuntimeError:
        raise StepError(f"{entry.filename!r} grew while it was packed; end what writes to it") from None


def _parts(name: str) -> tuple[str, ...]:
    """The way to an entry, which leads nowhere but down."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or not pure.parts:
        raise StepError(
            f"the archive holds {name!r}, which leads out of the working directory; nothing more is unpacked"
        )
    return pure.parts


@contextmanager
def _opened(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """A descriptor of a folder below the root, made where it is missing."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            try:
                inner = os.open(part, _FOLDER, dir_fd=folder)
            except NotADirectoryError:
                raise StepError(
                    f"the archive holds the folder {'/'.join(parts)!r}, but {part!r} is a link or a file in the "
                    "working directory; nothing more is unpacked"
                ) from None
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _unpack_file(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, root: Path, parts: tuple[str, ...], left: int
) -> int:
    with _opened(root, parts[:-1]) as folder:
        _clear(folder, parts[-1])
        descriptor = os.open(parts[-1], _NEW_FILE, 0o666, dir_fd=folder)
    with open(descriptor, "wb") as file, archive.open(entry) as packed:
        while chunk := packed.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise StepError("the archive is larger than allowed when unpacked; nothing more is unpacked")
            file.write(chunk)
        if permissions := stat.S_IMODE(entry.external_attr >> 16) & 0o777:
            os.fchmod(descriptor, permissions)
        file.flush()
        if (moment := _modified(entry)) is not None:
            os.utime(descriptor, (moment, moment))
    return left


def _unpack_link(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, root: Path, parts: tuple[str, ...]) -> None:
    where = archive.read(entry) if entry.file_size < LONGEST_LINK_BYTES else b""
    if not where or b"\0" in where:
        raise StepError(f"the archive holds the link {entry.filename!r} with an impossible target")
    with _opened(root, parts[:-1]) as folder:
        _clear(folder, parts[-1])
        os.symlink(where, os.fsencode(parts[-1]), dir_fd=folder)


def _clear(folder: int, name: str) -> None:
    """Make room for an entry; what stands there may be a link and must not be written through."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise StepError(f"the archive holds a file {name!r} where the working directory has a folder")
        os.unlink(name, dir_fd=folder)


def _take_back(root: Path, made: Iterable[tuple[str, ...]]) -> None:
    for parts in made:
        with suppress(OSError, StepError), _opened(root, parts[:-1]) as folder:
            os.unlink(parts[-1], dir_fd=folder)


def _modified(entry: zipfile.ZipInfo) -> int | None:
    """When a file was last changed, as far as the archive says it."""
    at = 0
    while at + 9 <= len(entry.extra):
        kind, size, flags, seconds = struct.unpack_from("<HHBl", entry.extra, at)
        if kind == _TIMES and size >= 5 and flags & 1:
            return int(seconds)
        at += 4 + size
    try:
        return calendar.timegm((*entry.date_time, 0, 0, 0))
    except ValueError:
        return None


def _seconds(moment: float) -> int:
    """As the extra field can hold them."""
    return min(max(int(moment), -(2**31)), 2**31 - 1)
