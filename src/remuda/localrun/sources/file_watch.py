"""Waits until files of a folder change, for `remuda run --watch`: a new or removed file, or another size, time or mode;
files that git ignores do not count. A change is reported when nothing has changed for `QUIET_SECONDS`, because an
editor or a checkout writes many files. Polling costs little and works on every file system."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from remuda.localrun.sources.repository import Repository
from remuda.localrun.sources.worktree import walk_files

LOOK_SECONDS = 0.5
QUIET_SECONDS = 0.3

Look = dict[str, tuple[int, int, int]]


def look(folder: Path) -> Look:
    """Return modification time, size and mode of every file by path, without the files that git ignores."""
    files: Look = {}
    for name in _names(folder):
        try:
            status = os.lstat(folder / name)
        except (OSError, ValueError):
            continue
        files[name] = (status.st_mtime_ns, status.st_size, status.st_mode)
    return files


def wait_for_change(
    folder: Path, before: Look, *, sleep: Callable[[float], None] = time.sleep, see: Callable[[Path], Look] = look
) -> list[str]:
    """Wait until files differ from `before` and then rest for `QUIET_SECONDS`; return the sorted changed paths."""
    while (now := see(folder)) == before:
        sleep(LOOK_SECONDS)
    while True:
        sleep(QUIET_SECONDS)
        after = see(folder)
        if after == now:
            return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        now = after


def _names(folder: Path) -> Iterable[str]:
    repository = Repository.at(folder)
    return walk_files(folder) if repository is None else [*repository.index(), *repository.untracked_files()]
