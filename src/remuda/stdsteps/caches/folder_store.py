"""Caches in a local folder, one zip archive for each cache key. The folder is opened without following symbolic links,
because a job that runs as the owner of the caches can replace the folder by a link. The comment of an archive is a
digest of the names, sizes and times of its files, so that a save writes nothing if no file has changed. An archive gets
its name only when it is complete; of two concurrent saves the later one wins."""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from remuda.lib.safe_paths import close_after, make_below, open_below

DEFAULT_KEY = "default"
LONGEST_NAME = 200
SUFFIX = ".zip"
ASIDE = ".new-"
"""Prefix of archives that are being written; no key has such a name."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]|\A\.")


def file_name(key: str) -> str:
    """Return the name of a key's archive: unsafe characters percent-encoded, a long key replaced by its SHA-256."""
    safe = _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in _encode(match[0])), key or DEFAULT_KEY)
    if len(safe) > LONGEST_NAME:
        # No other key gives this name: in an encoded key, two hex digits follow each %.
        safe = f"%sha256-{hashlib.sha256(_encode(key)).hexdigest()}"
    return safe + SUFFIX


@contextmanager
def open_folder(folder: str, root: str, *, is_made: bool) -> Iterator[Path]:
    """Open the folder with the archives of one project and yield a path through /proc/self/fd, which stays valid even
    if another process replaces the folder. `root`: the folder of all projects' caches, below which symbolic links are
    refused; if empty, all links are followed. `is_made`: create the folder, and replace links below `root` by folders.
    Raises OSError if the folder does not exist, cannot be created, or a link is refused."""
    if is_made and not root:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    base, relative = (Path(root), os.path.relpath(folder, root)) if root else (Path(folder), "")
    opened = make_below(base, relative, mode=0o700, may_be_mounted=True) if is_made else open_below(base, relative)
    with close_after(opened):
        yield Path(f"/proc/self/fd/{opened}")


def is_plain(archive: Path) -> bool:
    try:
        return stat.S_ISREG(archive.lstat().st_mode)
    except OSError:
        return False


def digest_listing(root: Path, names: Iterable[str]) -> tuple[str, int]:
    """Return a SHA-256 of the names, modes, sizes, times and link targets of the files `names` in `root`, and their
    total size in bytes. File contents are not read."""
    digest = hashlib.sha256(b"remuda cache 1\n")
    size = 0
    for name in sorted(names):
        status = (root / name).lstat()
        line = f"{name}\0{status.st_mode:o}"
        if stat.S_ISREG(status.st_mode):
            # To the second, as archives keep it: otherwise every cache would seem changed once it was restored.
            line += f"\0{status.st_size}\0{int(status.st_mtime)}"
            size += status.st_size
        elif stat.S_ISLNK(status.st_mode):
            line += f"\0{os.readlink(root / name)}"
        digest.update(os.fsencode(line) + b"\n\0")
    return digest.hexdigest(), size


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
