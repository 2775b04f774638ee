"""Empties, removes and repairs files that earlier jobs left in a working directory; makes temporary folders.

A step may have more rights than the job that left the files, so no link is followed; see `remuda.lib.safe_paths`.
"""

import os
import tempfile
from pathlib import Path

from remuda.lib import safe_paths
from remuda.lib.safe_paths import close_after, grant_owner, open_folder, replace_file, walk
from remuda.stdsteps.common.errors import PlatformError


def empty(folder: Path) -> None:
    """Remove everything in a folder, but not the folder: it is the job's working directory."""
    with close_after(open_folder(str(folder))) as opened:
        safe_paths.empty(opened)


def make_temporary(prefix: str, *, place: str | None = None) -> "tempfile.TemporaryDirectory[str]":
    """A folder that is removed at the end of the block.

    It lies in the step's temporary folder, which the agent removes if the step is killed; without an agent in `place`.
    """
    return tempfile.TemporaryDirectory(prefix=prefix, dir=os.environ.get("REMUDA_TEMPORARY") or place)


def remove(path: Path) -> None:
    """Remove a file, link or folder tree. Does not follow links."""
    safe_paths.remove(str(path))


def write(folder: Path, name: str, data: bytes) -> None:
    """Write a file; a file or link of this name is replaced."""
    with close_after(open_folder(str(folder))) as opened:
        replace_file(opened, name, data)


def repair(folder: Path) -> None:
    """Give the owner of every folder in a tree the rights back that a job has taken away."""
    with close_after(open_folder(str(folder))) as opened:
        for entry in walk(opened, is_repaired=True):
            grant_owner(entry.descriptor)


def is_plain(folder: Path) -> bool:
    """True if a tree has only folders and plain files. Gives the owner of every folder its rights back meanwhile.

    A job's repository must be like that: git would write through links, and block forever at a pipe.
    """
    try:
        opened = open_folder(str(folder))
    except OSError:
        return False
    with close_after(opened):
        for entry in walk(opened, is_repaired=True):
            if not entry.is_plain:
                return False
            grant_owner(entry.descriptor)
    return True


def check_mounts(folder: str) -> None:
    """Raise PlatformError if something is mounted inside the folder: cleaning would empty that, too."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = safe_paths.mounts_below(os.path.realpath(folder), file.read())
    except FileNotFoundError:
        return
    if mounts:
        raise PlatformError(
            f"something is mounted at {mounts[0]}, in the working directory; the owner of this machine has to "
            "unmount it before a job can begin there"
        )
