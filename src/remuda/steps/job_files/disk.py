"""Disk space under the agent's data folder: checks it, lets jobs wait for it, and explains disk errors.

If one job has filled the disk, its running steps are ended (`disk_usage`), and the agent releases its reserve, so that
other jobs and the remaining steps, which may free space, continue. If no such job is found, writes of jobs wait for
space for a while; then the write fails, and with it the step or the job."""

import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from remuda.lib.clock import Clock
from remuda.lib.safe_paths import remove_tree
from remuda.steps.job_tree.outcome import Fault, Finished, Kind, failure
from remuda.steps.process.step_files import is_jobs_doing

ROOM_SECONDS = 300.0
"""How long jobs wait for space after the disk became full."""
LOOK_SECONDS = 1.0
LEAST_BYTES = 1024**2
"""Less free space counts as full; on a small disk a 64th of the disk."""
LEAST_FILES = 8
"""Fewer free inodes count as full."""
RESERVE_BYTES = 16 * 1024**2
"""Size of the reserve; on a small disk a sixteenth of the disk."""
RESERVE_FILES = 64
RESERVE = "reserve"
_COMMANDS_FAULT = (errno.E2BIG, errno.ENAMETOOLONG)
"""Caused only by words, variables or names that are too long."""


def has_room(folder: Path) -> bool:
    try:
        filesystem = os.statvfs(folder)
    except OSError:
        return True
    free = count_free(filesystem, is_root=os.geteuid() == 0)
    least = min(LEAST_BYTES, filesystem.f_blocks * filesystem.f_frsize // 64)
    return free * filesystem.f_frsize >= least and (filesystem.f_ffree >= LEAST_FILES or filesystem.f_files == 0)


def count_free(filesystem: os.statvfs_result, *, is_root: bool) -> int:
    """Return the number of free blocks that this process can write: for root also root's reserve, not ext4's own."""
    if not is_root:
        return filesystem.f_bavail
    return filesystem.f_bfree - min(filesystem.f_bfree - filesystem.f_bavail, filesystem.f_blocks // 50, 4096)


class Reserve:
    """Disk space and inodes that the agent occupies with files, so that it can release them when the disk is full. The
    file `bytes` is made last and removed first, so the reserve is complete if that file has its full size."""

    def __init__(self, data: Path) -> None:
        self._folder = data / RESERVE
        self._bytes = self._folder / "bytes"

    def hold(self) -> None:
        with suppress(OSError):
            filesystem = os.statvfs(self._folder.parent)
            size = min(RESERVE_BYTES, filesystem.f_blocks * filesystem.f_frsize // 16)
            files = min(RESERVE_FILES, filesystem.f_files // 16) if filesystem.f_files else 0
            if self._is_whole(size):
                return
            if self.release():
                filesystem = os.statvfs(self._folder.parent)
            if filesystem.f_bavail * filesystem.f_frsize < 2 * size or (files and filesystem.f_favail < 2 * files):
                return
            self._folder.mkdir(mode=0o700)
            try:
                for number in range(files):
                    (self._folder / str(number)).touch()
                with open(self._bytes, "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, size)
            except OSError:
                self.release()

    def _is_whole(self, size: int) -> bool:
        try:
            return self._bytes.stat().st_size >= size
        except FileNotFoundError:
            return False

    def release(self) -> bool:
        if not self._folder.exists():
            return False
        with suppress(OSError):
            self._bytes.unlink()
        remove_tree(self._folder, ignore_errors=True)
        return True


class DiskSpace:
    def __init__(self, has_room: Callable[[Path], bool] = has_room) -> None:
        self.has_room = has_room
        self._full_since: float | None = None
        self._is_relieving = False
        self.relieve: Callable[[], Awaitable[None]] | None = None
        """Frees space; called once when the disk becomes full (by its free space, or by a write that failed)."""

    async def look(self, folder: Path, clock: Clock) -> None:
        """If the disk of `folder` became full, call `relieve`. Called regularly: a job can fill it unnoticed."""
        if self._is_relieving:
            return
        if self.has_room(folder):
            self._full_since = None
        elif self._full_since is None:
            await self._relieve(folder, clock.monotonic())

    async def _relieve(self, folder: Path, now: float) -> None:
        self._full_since, self._is_relieving = now, True
        try:
            if self.relieve is not None:
                with suppress(OSError):
                    await self.relieve()
        finally:
            self._is_relieving = False
        if self.has_room(folder):
            self._full_since = None

    async def wait(
        self,
        folder: Path,
        clock: Clock,
        meanwhile: Callable[[], object] = lambda: None,
        *,
        has_failed: bool = False,
    ) -> float:
        """Wait until the disk has space, or has been full for `ROOM_SECONDS`. Returns the seconds waited in both cases.
        While the callback `relieve` stops the job that filled the disk, the wait goes on even if there is space.
        `meanwhile` is called about once a second. `has_failed`: a write has just failed because the disk was full, so
        call `relieve` or wait for a second, even if there is space now."""
        began = now = clock.monotonic()
        while has_failed or self._is_relieving or not self.has_room(folder):
            has_failed = False
            if self._full_since is None:
                await self._relieve(folder, now)
                now = clock.monotonic()
                continue
            with suppress(OSError):  # the disk has no space to record anything
                meanwhile()
            if now - self._full_since >= ROOM_SECONDS:
                return now - began
            await clock.sleep(LOOK_SECONDS)
            now = clock.monotonic()
        self._full_since = None
        return now - began


def shows_full_disk(error: OSError, folder: Path) -> bool:
    """True if a write below `folder` failed because its disk is full. False for errors that name a file elsewhere."""
    return error.errno == errno.ENOSPC and (
        not isinstance(error.filename, str | bytes) or Path(os.fsdecode(error.filename)).is_relative_to(folder)
    )


def describe_wait(seconds: float) -> str:
    return f"WARNING: the job waited {seconds:.0f} s for room on the disk of its machine"


def describe_error(error: OSError, folder: Path) -> str:
    if not folder.exists():
        return f"its folder {folder} is gone: somebody has removed it"
    about = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
    return f"{error.strerror or error}{about}"


def judge_start_error(error: OSError, folder: Path) -> Finished:
    """Return the failed result of a step that cannot start or go on because of `error`: the user's fault if the command
    is too long or the job has replaced one of the step's files (in `folder`, the job's), else the runner's."""
    if error.errno in _COMMANDS_FAULT:
        return failure(f"the step's command cannot be started: {error.strerror}", Kind.LOAD)
    if is_jobs_doing(error, folder):
        name = os.path.basename(error.filename2 or error.filename)
        return failure(f"{name}: {error.strerror}; the job has put something else there", Kind.LOAD)
    return failure(f"the agent cannot run the step: {describe_error(error, folder)}", Kind.SYSTEM, fault=Fault.RUNNER)
