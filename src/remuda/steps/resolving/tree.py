"""The digest, change stamp (a text that differs after any change) and size of a package folder, and its protection
against changes.

The digest covers each file's path, whether it is executable, and its content, or the target of a link. It leaves out
owners, times and write permissions, so the same files have the same digest on every machine and from every source."""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_CHUNK = 256 * 1024
_FILE, _PROGRAM, _LINK = "100644", "100755", "120000"


def digest_of(root: Path) -> str:
    """Return the digest of all files below the folder `root`, with the prefix `sha256:`."""
    total = hashlib.sha256(b"remuda step package 1\n")
    for name, status in _entries(root):
        path = root / name
        if stat.S_ISLNK(status.st_mode):
            mode, content = _LINK, hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()
        else:
            mode, content = _PROGRAM if status.st_mode & 0o111 else _FILE, _hash_of(path)
        total.update(f"{mode} {content} ".encode() + os.fsencode(name) + b"\0")
    return f"sha256:{total.hexdigest()}"


def stamp_of(root: Path) -> str:
    """Return a text that differs after any change of a file, from metadata such as inode: a copy has another one."""
    total = hashlib.sha256()
    for name, status in _entries(root):
        # The time of the last status change cannot be set.
        total.update(os.fsencode(name))
        total.update(f"\0{status.st_mode} {status.st_size} {status.st_ino} {status.st_ctime_ns}\n".encode())
    return total.hexdigest()


def size_of(root: Path) -> int:
    return sum(status.st_size for _, status in _entries(root))


def protect(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        os.chmod(folder, 0o555)


def keep(folder: Path, place: Path) -> None:
    """Move `folder` to `place` and make it read-only. If a folder `place` exists already, does nothing."""
    place.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    if not place.is_dir():
        with suppress(OSError):
            folder.rename(place)
        protect(place)


def _entries(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    entries: list[tuple[str, os.stat_result]] = []
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                entries.append((os.path.relpath(path, root), status))
    yield from sorted(entries, key=lambda item: os.fsencode(item[0]))


def _hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
