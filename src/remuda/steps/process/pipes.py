"""The pipe that a step prints into, from its processes to its raw file.

Everybody who prints has the pipe open for reading, too: so it lives as long as one of them does, whoever reads it, and
a process that prints while no agent is there waits for the next one instead of being killed. That is the back-pressure
as well: what the agent does not take, nobody goes on printing after.

The kernel moves what is in the pipe into the raw file at one go (splice), so that a killed agent has either left a byte
in the pipe or put it into the file. The next agent opens the pipe through the shim that holds it. A program that opens
its own output anew (`>/dev/stderr`) gets the pipe again; a file would be emptied by that.
"""

import array
import asyncio
import fcntl
import os
import stat
import termios
from collections.abc import Callable, Iterable
from contextlib import suppress

from remuda.steps.process.leftovers import Leftover
from remuda.steps.process.shim import start_time

TAKE_BYTES = 1024 * 1024
"""As much as a pipe can hold that was widened."""
_WIDEN_ABOVE_BYTES = 16 * 1024
_DRAIN_SECONDS = 0.05
_SET_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)


class Pipe:
    """The agent's end."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        self._armed = False
        self._widened = False

    @classmethod
    def make(cls, owner: tuple[int, int] | None = None) -> tuple["Pipe", int]:
        """A new one, and the end for those who print. `owner`: who may open it anew, where it is not the agent."""
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
        """The one that a process prints into, if it does. No other pipe is open for reading and printing at once."""
        path = f"/proc/{pid}/fd/1"
        try:
            if not stat.S_ISFIFO(os.stat(path).st_mode) or not _is_open_for_both(pid):
                return None
            return cls(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError:
            return None

    def count_waiting(self) -> int:
        """How many bytes are in it."""
        found = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, found)
        return found[0]

    def take(self, raw: str, most: int = TAKE_BYTES) -> int:
        """Move what is there into the raw file, behind what is in it; how many bytes that were."""
        if not self.count_waiting():
            return 0
        file = os.open(raw, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            moved = self._move(file, os.fstat(file).st_size, most)
        finally:
            os.close(file)
        if moved > _WIDEN_ABOVE_BYTES and not self._widened:
            self._widened = True
            with suppress(OSError):  # a user may have only so much of it
                fcntl.fcntl(self._fd, _SET_SIZE, TAKE_BYTES)
        return moved

    def drop(self) -> bool:
        """Throw away what is there; False when nothing is, and nobody can print into it any more."""
        try:
            return bool(os.read(self._fd, TAKE_BYTES))
        except BlockingIOError:
            return True

    def arm(self, callback: Callable[[], None]) -> None:
        """Call back once, when there is something in it. Arming again changes nothing."""
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
            except OSError:
                # A file system that cannot: only here a kill between two calls would lose something.
                size = _copy(self._fd, file, end + moved)
            if size == 0:
                break
            moved += size
        return moved


class Drains:
    """Pipes into which something prints that a step has left running: nobody reads that, but it must not wait."""

    def __init__(self) -> None:
        self._pipes: set[Pipe] = set()

    def add(self, pipe: Pipe) -> None:
        """From now on; a pipe of which nobody is left is closed at once."""
        pipe.disarm()
        if pipe.drop():
            self._pipes.add(pipe)
            pipe.arm(lambda: self._wait(pipe))
        else:
            pipe.close()

    def adopt(self, leftovers: Iterable[Leftover]) -> None:
        """The same for what steps have left running under an earlier agent."""
        for pid, start in (process for leftover in leftovers for process in leftover.processes):
            if start_time(pid) == start and (pipe := Pipe.open_of(pid)) is not None:
                self.add(pipe)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()

    def _wait(self, pipe: Pipe) -> None:
        """Something that prints on and on is not worth all of the agent's time."""
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
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
    return len(data)
