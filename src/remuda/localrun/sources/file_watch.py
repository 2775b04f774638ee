"""Waits until files of a folder change, for `remuda run --watch`.

A change is a new or removed file, or another size, time or mode; files that git ignores do not count. It is reported
when nothing has changed for `QUIET_SECONDS`, because an editor or a checkout writes many files. Polling costs little
and works on every file system.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from remuda.localrun.sources.repository import Repository

LOOK_SECONDS = 0.5
QUIET_SECONDS = 0.3

Look = dict[str, tuple[int, int, int]]


def look(folder: Path) -> Look:
    """Return time, size and mode of every file in a folder, by path.

    In a git repository, ignored files are left out.
    """
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
    """Wait until files differ from `before` and then do not change for `QUIET_SECONDS`.

    Returns the sorted paths of the files that differ. `sleep` and `see` can be replaced in tests.
    """
    while (now := see(folder)) == before:
        sleep(LOOK_SECONDS)
    while True:
        sleep(QUIET_SECONDS)
        after = see(folder)
        if after == now:
            return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        now = after


def _names(folder: Path) -> list[str]:
    repository = Repository.at(folder)
    if repository is not None:
        return [*repository.index(), *repository.untracked_files()]
    return [
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in os.walk(folder)
        for name in names
        if ".git" not in Path(place).parts
    ]
