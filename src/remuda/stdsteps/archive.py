"""Zip archives of artifacts: made the same way every time, unpacked without trust.

The same files give the same bytes (sorted names, the files' own times), so that a repeated upload is recognised.
An archive comes from another job and may say anything: names that lead out of the folder, links that do, and
contents that grow without end are refused.
"""

import os
import shutil
import stat
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from remuda.stdsteps.errors import StepError

LARGEST_BYTES = 16 * 1024**3
"""Unpacked size above which an archive is refused."""
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_CHUNK = 256 * 1024


def write_zip(output: Path, root: Path, names: Iterable[str]) -> None:
    """Files, folders and links of these names, relative to the root."""
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        for name in sorted(names):
            path = root / name
            status = path.lstat()
            moment = max(time.gmtime(status.st_mtime)[:6], _EARLIEST)
            is_folder = stat.S_ISDIR(status.st_mode)
            entry = zipfile.ZipInfo(name + "/" if is_folder else name, moment)
            entry.external_attr = (status.st_mode & 0xFFFF) << 16 | (0x10 if is_folder else 0)
            entry.compress_type = zipfile.ZIP_DEFLATED
            if is_folder:
                archive.writestr(entry, b"", zipfile.ZIP_STORED)
            elif stat.S_ISLNK(status.st_mode):
                archive.writestr(entry, os.fsencode(os.readlink(path)), zipfile.ZIP_STORED)
            elif stat.S_ISREG(status.st_mode):
                entry.file_size = status.st_size
                with path.open("rb") as source, archive.open(entry, "w") as target:
                    shutil.copyfileobj(source, target, _CHUNK)


def unpack_zip(source: Path, root: Path, *, largest_bytes: int = LARGEST_BYTES) -> int:
    """Put an archive's files below the root; how many. Links come last, so that no file is written through one."""
    root = root.resolve()
    left = largest_bytes
    links: list[zipfile.ZipInfo] = []
    count = 0
    try:
        with zipfile.ZipFile(source) as archive:
            for entry in archive.infolist():
                target = _target(root, entry.filename)
                mode = entry.external_attr >> 16
                if entry.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                elif stat.S_ISLNK(mode):
                    links.append(entry)
                else:
                    left = _unpack_file(archive, entry, target, mode, left)
                count += 1
            made = [_unpack_link(archive, entry, root) for entry in links]
            # Links may lead through each other, so where they end is known only when all are there.
            for link in made:
                if not link.resolve().is_relative_to(root):
                    link.unlink()
                    raise StepError(
                        f"the archive holds the link {link.name!r}, which leads out of the working directory"
                    )
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise StepError(f"the archive is damaged or of an unknown kind: {error}") from None
    return count


def _target(root: Path, name: str) -> Path:
    """Where an entry goes; its folder exists and is inside the root."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or not pure.parts:
        raise StepError(
            f"the archive holds {name!r}, which leads out of the working directory; nothing more is unpacked"
        )
    target = root.joinpath(*pure.parts)
    if not target.parent.resolve().is_relative_to(root):
        raise StepError(f"the archive holds {name!r}, which leads out of the working directory through a link")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _unpack_file(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, mode: int, left: int) -> int:
    _clear(target)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with archive.open(entry) as packed, open(os.open(target, flags, 0o666), "wb") as file:
        while chunk := packed.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise StepError("the archive is larger than allowed when unpacked; nothing more is unpacked")
            file.write(chunk)
    if permissions := stat.S_IMODE(mode) & 0o777:
        target.chmod(permissions)
    return left


def _unpack_link(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, root: Path) -> Path:
    if entry.file_size > 4096:
        raise StepError(f"the archive holds the link {entry.filename!r} with an impossible target")
    link = _target(root, entry.filename)
    where = os.fsdecode(archive.read(entry))
    if os.path.isabs(where) or not Path(os.path.normpath(link.parent.resolve() / where)).is_relative_to(root):
        raise StepError(f"the archive holds the link {entry.filename!r} to {where!r}, outside the working directory")
    _clear(link)
    link.symlink_to(where)
    return link


def _clear(target: Path) -> None:
    """Make room for an entry; what stands there may be a link and must not be written through."""
    if target.is_dir() and not target.is_symlink():
        raise StepError(f"the archive holds a file {target.name!r} where the working directory has a folder")
    target.unlink(missing_ok=True)
