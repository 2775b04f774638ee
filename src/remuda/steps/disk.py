"""The disk under the agent's data folder: whether there is room, how long jobs wait for it, what its errors mean.

All jobs of an agent share the disk, and one of them may fill it: what the others would write waits for a while, so that
they go on when there is room again. Who writes waits before (`runner`, `execution`); without room after that time the
write fails, and the job ends with that cause.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from remuda.lib.clock import Clock
from remuda.steps.outcome import Fault, Finished, Kind, failure

ROOM_SECONDS = 300.0
"""How long a full disk is waited for."""
LOOK_SECONDS = 1.0
LEAST_BYTES = 1024**2
"""Less is no room; a disk so small that this is much of it needs less."""
_COMMANDS_FAULT = (errno.E2BIG, errno.ENAMETOOLONG)
"""What only words, variables or names that are too long can cause."""


def has_room(folder: Path) -> bool:
    """Whether more can be written; where that cannot be told, whoever writes will see."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return True
    free = found.f_bfree if os.geteuid() == 0 else found.f_bavail
    least = min(LEAST_BYTES, found.f_blocks * found.f_frsize // 64)
    return free * found.f_frsize >= least and (found.f_ffree > 0 or found.f_files == 0)


class Room:
    """One disk, as all jobs see it."""

    def __init__(self, has_room: Callable[[Path], bool] = has_room) -> None:
        self._has_room = has_room
        self._full_since: float | None = None

    async def wait(self, folder: Path, clock: Clock) -> float:
        """Until there is room, or the disk has been full for too long; how many seconds that took."""
        began = now = clock.monotonic()
        while not self._has_room(folder):
            if self._full_since is None:
                self._full_since = now
            if now - self._full_since >= ROOM_SECONDS:
                return now - began
            await clock.sleep(LOOK_SECONDS)
            now = clock.monotonic()
        self._full_since = None
        return now - began


def waited(seconds: float) -> str:
    """For the log."""
    return f"WARNING: the job waited {seconds:.0f} s for room on the disk of its machine"


def cause_of(error: OSError, folder: Path) -> str:
    """What the system refused in the folder of a job."""
    if not folder.exists():
        return f"its folder {folder} is gone: somebody has removed it"
    about = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
    return f"{error.strerror or error}{about}"


def unstarted(error: OSError, folder: Path) -> Finished:
    """What it means that the system refused something on the way to a step's process or beside it."""
    if error.errno in _COMMANDS_FAULT:
        return failure(f"the step's command cannot be started: {error.strerror}", Kind.LOAD)
    return failure(f"the agent cannot run the step: {cause_of(error, folder)}", Kind.SYSTEM, fault=Fault.RUNNER)
