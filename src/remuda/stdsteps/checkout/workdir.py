"""Deletes and repairs files that earlier jobs left in a working directory, and creates temporary folders. A step may
have more rights than the job that left the files, so no symbolic link is followed (`remuda.lib.safe_paths`)."""

import os
import tempfile
from pathlib import Path

from remuda.lib import safe_paths
from remuda.lib.safe_paths import close_after, grant_owner, open_folder, replace_file, walk
from remuda.stdsteps.common.errors import PlatformError


def empty(folder: Path) -> None:
    """Delete everything in a folder, but keep the folder, because it is the job's working directory."""
    with close_after(open_folder(str(folder))) as opened:
        safe_paths.empty(opened)


def make_temporary(prefix: str, *, place: str | None = None) -> "tempfile.TemporaryDirectory[str]":
    """Create a folder for a `with` block: in the step's temporary folder (REMUDA_TEMPORARY), which the agent deletes
    even if the step is killed; without an agent, in the folder `place` (None: the system's temporary folder)."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=os.environ.get("REMUDA_TEMPORARY") or place)


def remove(path: Path) -> None:
    """Delete a file, a symbolic link or a folder tree, without following links."""
    safe_paths.remove(str(path))


def write(folder: Path, name: str, data: bytes) -> None:
    """Write the file `name` in a folder. An existing file or link of this name is replaced, not followed."""
    with close_after(open_folder(str(folder))) as opened:
        replace_file(opened, name, data)


def repair(folder: Path) -> None:
    """Restore the owner's permissions, which a job may have removed, on every folder of a tree."""
    with close_after(open_folder(str(folder))) as opened:
        for entry in walk(opened, is_repaired=True):
            grant_owner(entry.descriptor)


def is_plain(folder: Path) -> bool:
    """True if `folder` is a folder tree with only folders and regular files; restores the owner's permissions on its
    folders. For a repository that a job left: git would write through links, and block forever on a pipe."""
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
    """Raise PlatformError if a file system is mounted inside the folder, because cleaning would delete its files."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = safe_paths.mounts_below(os.path.realpath(folder), file.read())
    except FileNotFoundError:
        return
    if mounts:
        raise PlatformError(
            f"a file system is mounted at {mounts[0]}, in the working directory; an administrator of this machine must "
            "unmount it before a job can run there"
        )
