"""The pipe through which a step's processes print. The agent moves the bytes to the *raw file* (output before masking).

Writers have the pipe open for reading, too, so while no agent runs they block instead of being killed by SIGPIPE. The
kernel moves the bytes into the raw file (splice), so that each is either in the pipe or in the file if an agent is
killed. The next agent opens the pipe through /proc of the shim, which holds it open. A program that opens its output
again (`>/dev/stderr`) gets the same pipe; a file would be truncated."""

import array
import asyncio
import errno
import fcntl
import os
import stat
import termios
from collections.abc import Callable, Iterable
from contextlib import suppress

from remuda.lib.files import write_all
from remuda.steps.process.leftovers import Leftover
from remuda.steps.process.shim import start_time

TAKE_BYTES = 1024 * 1024
"""Capacity of a pipe that was widened because its step prints much, and the most that is read at once."""
_WIDEN_ABOVE_BYTES = 16 * 1024
_DRAIN_SECONDS = 0.05
_SET_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)


class Pipe:
    """The reading end of a step's output pipe, in the agent."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        self._armed = False
        self._widened = False

    @classmethod
    def make(cls, owner: tuple[int, int] | None = None) -> tuple["Pipe", int]:
        """Create a pipe. Returns its reading end, and a descriptor for the processes that print. `owner`: user and
        group that may open the pipe again through /proc, if not the agent's."""
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if owner is not None:
                os.fchown(writing, *owner)
            printing = os.open(f"/proc/self/fd/{writing}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return cls(reading), printing

    @classmethod
    def open_of(cls, pid: int) -> "Pipe | None":
        """Open the pipe into which a running process prints; None if its stdout is not a pipe made by `make`."""
        path = f"/proc/{pid}/fd/1"
        try:
            if not stat.S_ISFIFO(os.stat(path).st_mode) or not _is_open_for_both(pid):
                return None
            return cls(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError:
            return None

    def count_waiting(self) -> int:
        size = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, size)
        return size[0]

    def take(self, raw: str, most: int = TAKE_BYTES) -> int:
        """Move up to `most` bytes from the pipe to the end of the file `raw`. Returns how many were moved. If the disk
        becomes full, the other bytes stay in the pipe; OSError is raised only if nothing was moved."""
        if not self.count_waiting():
            return 0
        file = os.open(raw, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            moved = self._move(file, os.fstat(file).st_size, most)
        finally:
            os.close(file)
        if moved > _WIDEN_ABOVE_BYTES and not self._widened:
            self._widened = True
            with suppress(OSError):  # the kernel limits the pipe memory of a user
                fcntl.fcntl(self._fd, _SET_SIZE, TAKE_BYTES)
        return moved

    def drop(self) -> bool:
        """Read and discard what is in the pipe. Returns False if the pipe is empty and all writers have closed it."""
        try:
            return bool(os.read(self._fd, TAKE_BYTES))
        except BlockingIOError:
            return True

    def arm(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the pipe has data or is closed. Calling `arm` again before that has no effect."""
        if not self._armed:
            self._armed = True
            asyncio.get_running_loop().add_reader(self._fd, self._fire, callback)

    def disarm(self) -> None:
        if self._armed:
            self._armed = False
            asyncio.get_running_loop().remove_reader(self._fd)

    def close(self) -> None:
        self.disarm()
        os.close(self._fd)

    def _fire(self, callback: Callable[[], None]) -> None:
        self.disarm()
        callback()

    def _move(self, file: int, end: int, most: int) -> int:
        moved = 0
        while moved < most:
            try:
                size = os.splice(self._fd, file, most - moved, offset_dst=end + moved, flags=os.SPLICE_F_NONBLOCK)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    if moved:
                        break
                    raise
                # The file system has no splice: only here a kill between two calls loses bytes.
                size = _copy(self._fd, file, end + moved)
            if size == 0:
                break
            moved += size
        return moved


class Drains:
    """Reads and discards output of background processes that steps left, so that they do not block on a full pipe."""

    def __init__(self) -> None:
        self._pipes: set[Pipe] = set()

    def add(self, pipe: Pipe) -> None:
        """Discard the content of a pipe from now on, and close it when it has no writer any more."""
        pipe.disarm()
        if pipe.drop():
            self._pipes.add(pipe)
            pipe.arm(lambda: self._wait(pipe))
        else:
            pipe.close()

    def adopt(self, leftovers: Iterable[Leftover]) -> None:
        for pid, start in (process for leftover in leftovers for process in leftover.processes):
            if start_time(pid) == start and (pipe := Pipe.open_of(pid)) is not None:
                self.add(pipe)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()

    def _wait(self, pipe: Pipe) -> None:
        """Schedule the next read for a moment later, so that a process that prints all the time costs little CPU."""
        asyncio.get_running_loop().call_later(_DRAIN_SECONDS, self._look, pipe)

    def _look(self, pipe: Pipe) -> None:
        if pipe in self._pipes:
            self._pipes.discard(pipe)
            self.add(pipe)


def _is_open_for_both(pid: int) -> bool:
    with open(f"/proc/{pid}/fdinfo/1") as lines:
        flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE == os.O_RDWR


def _copy(source: int, file: int, offset: int) -> int:
    try:
        data = os.read(source, 64 * 1024)
    except BlockingIOError:
        return 0
    try:
        write_all(file, data, offset)
    except OSError as error:
        # Another errno: the bytes are not in the pipe any more, so the caller must not try again.
        raise OSError(errno.EIO, f"{len(data)} bytes of output are lost: {error.strerror}") from error
    return len(data)
