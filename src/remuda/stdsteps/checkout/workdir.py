"""What earlier jobs left in a working directory: emptied, removed, repaired, whatever it is.

A step may have more rights than the job that left it, so nothing follows a link; see `remuda.lib.safe_paths`. And
folders for what a step makes for a moment.
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
    """A folder that goes at the end. The agent has made one for the step, and removes it when the step is killed;
    `place` is where it lies without an agent."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=os.environ.get("REMUDA_TEMPORARY") or place)


def remove(path: Path) -> None:
    """Whatever it is; a link, not what it leads to."""
    safe_paths.remove(str(path))


def write(folder: Path, name: str, data: bytes) -> None:
    """Put a file in the place of a file or link."""
    with close_after(open_folder(str(folder))) as opened:
        replace_file(opened, name, data)


def repair(folder: Path) -> None:
    """Give the owner of every folder in a tree the rights back that a job has taken away."""
    with close_after(open_folder(str(folder))) as opened:
        for found in walk(opened, is_repaired=True):
            grant_owner(found.descriptor)


def is_plain(folder: Path) -> bool:
    """Whether a tree has nothing but folders and plain files; its owner's rights are repaired on the way.

    A repository of a job's has to be like that: git makes no links there, would write through them, and would wait for
    ever at a pipe.
    """
    try:
        opened = open_folder(str(folder))
    except OSError:
        return False
    with close_after(opened):
        for found in walk(opened, is_repaired=True):
            if not found.is_plain:
                return False
            grant_owner(found.descriptor)
    return True


def check_mounts(folder: str) -> None:
    """Refuse to work in a folder in which something is mounted: cleaning it would empty that as well."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = safe_paths.mounts_below(os.path.realpath(folder), file.read())
    except FileNotFoundError:
        return
    if mounts:
        raise PlatformError(
            f"something is mounted at {mounts[0]}, in the working directory; whoever keeps this machine has to "
            "unmount it before a job can begin there"
        )
