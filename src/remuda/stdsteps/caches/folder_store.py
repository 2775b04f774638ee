"""Caches on a local folder: one archive for each key, and what is known of it without unpacking.

Decided here is which file a key has (`file_name`): never outside the folder, never that of another key. And how the
folder is opened (`open_folder`): where jobs run as the user who keeps the caches, one may have put a link there. An
archive carries the digest of the listing it was made from, so that a save can see that nothing changed. `cache_restore`
reads, `cache_save` writes; a file appears complete under its name or not at all, and of two savers the later one wins.
"""

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
"""How names begin of archives that are being written; no key has such a name."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]|\A\.")


def file_name(key: str) -> str:
    """The archive of a key. Different keys have different names; a long one is known by its digest."""
    safe = _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in _bytes(match[0])), key or DEFAULT_KEY)
    if len(safe) > LONGEST_NAME:
        # No other key gives this: what stands behind a % there is two digits.
        safe = f"%sha256-{hashlib.sha256(_bytes(key)).hexdigest()}"
    return safe + SUFFIX


@contextmanager
def open_folder(folder: str, root: str, *, is_made: bool) -> Iterator[Path]:
    """Open the folder of a project's archives; the path goes through a descriptor, whatever has the name by now.

    `root` is the folder for the caches of all projects: below it no link is followed, and `is_made` replaces it by a
    folder. Without a root the caller vouches for the whole path. OSError where the folder cannot be opened so.
    """
    if is_made and not root:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    base, relative = (Path(root), os.path.relpath(folder, root)) if root else (Path(folder), "")
    opened = make_below(base, relative, mode=0o700, may_be_mounted=True) if is_made else open_below(base, relative)
    with close_after(opened):
        yield Path(f"/proc/self/fd/{opened}")


def is_plain(archive: Path) -> bool:
    """True if it is a file, and neither a link to one nor a pipe."""
    try:
        return stat.S_ISREG(archive.lstat().st_mode)
    except OSError:
        return False


def listing_of(root: Path, names: Iterable[str]) -> tuple[str, int]:
    """A digest of what an archive of these files would keep, without their contents; and how many bytes they have."""
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


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
