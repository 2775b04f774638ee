"""Whether files that a run would take have changed: a look at all of them, and waiting for the next change.

Decided here: what counts as a change (a file is new, gone, or has another size, time or mode; ignored files do not
count) and when it is over: when nothing changed for a moment, because an editor or a checkout writes many files.
`remuda run --watch` is the caller. Looking again and again costs little and works on every file system.
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
    """The files with what tells a changed one from an unchanged one."""
    found: Look = {}
    for name in _names(folder):
        try:
            told = os.lstat(folder / name)
        except (OSError, ValueError):
            continue
        found[name] = (told.st_mtime_ns, told.st_size, told.st_mode)
    return found


def wait_for_change(
    folder: Path, before: Look, *, sleep: Callable[[float], None] = time.sleep, see: Callable[[Path], Look] = look
) -> list[str]:
    """Return when something is another than `before` and then stays as it is for a moment: the names of what is."""
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
        return [*repository.index(), *repository.untracked()]
    return [
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in os.walk(folder)
        for name in names
        if ".git" not in Path(place).parts
    ]
