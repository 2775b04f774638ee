"""The shim's process as the agent sees it: whether it lives, signals to its group, what it used.

It may be a child of this agent or of a dead one. Its end is noticed through a pidfd, so thousands of them need no
thread and no timer; where the kernel has no pidfd, they are looked at every 50 ms. A child is reaped when it ends,
whether or not anybody still waits for it. What its end means is decided in `plan`.
"""

import asyncio
import contextlib
import os
import resource
from collections.abc import Callable

from remuda.lib.values import dataclass
from remuda.steps import leftovers, shim
from remuda.steps.kernel import Pulse


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a step's processes used, as far as they were waited for."""

    cpu_user_seconds: float
    cpu_system_seconds: float
    max_rss_bytes: int | None
    """Unknown where it is not above the agent's own: a new process starts with its parent's peak."""

    def as_told(self) -> dict[str, float | int | None]:
        """For a result."""
        return {
            "cpu_user_seconds": self.cpu_user_seconds,
            "cpu_system_seconds": self.cpu_system_seconds,
            "max_rss_bytes": self.max_rss_bytes,
        }


class StepProcess:
    """A shim, from the moment the agent knows it until it has ended."""

    def __init__(self, pid: int, *, start: int | None, child: bool, pulse: Pulse, wake: Callable[[], None]) -> None:
        self.pid = pid
        self.exited = asyncio.Event()
        self.usage: Usage | None = None
        self.status: int | None = None
        """As the system tells it of a child: an exit code, or a signal below 0."""
        self._child = child
        if child:
            leftovers.LED.add(pid)
        self._wake = wake
        self._pulse = pulse
        self._start = start
        self._pidfd = -1
        self._seen_alive = True
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._found_dead()
            return
        except (OSError, AttributeError):  # the kernel has none, or the Python was built without
            pulse.add(self._check)
        # Looked at after the pidfd is open: from here on the number cannot be given to another process unnoticed.
        if start is not None and shim.start_time(pid) != start:
            self._found_dead()
        elif self._pidfd >= 0:
            asyncio.get_running_loop().add_reader(self._pidfd, self._ended)

    def signal_group(self, number: int) -> None:
        """Signal everything the step started. A process that was dead when it was found has no group any more."""
        if self._seen_alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def group_lives(self) -> bool:
        """Whether something of the step still runs, the shim itself aside once it has ended."""
        if not self._seen_alive:
            return False
        if self.exited.is_set():
            # Dead members whose parent was the shim are the agent's children now.
            leftovers.reaped(-self.pid)
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def _found_dead(self) -> None:
        self._seen_alive = False
        self._ended()

    def _check(self) -> None:
        """Without a pidfd: has it ended meanwhile?"""
        ended = self._reap() if self._child else shim.start_time(self.pid) != self._start
        if ended:
            self._ended()

    def _ended(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self._pulse.remove(self._check)
        self._reap()
        self.exited.set()
        self._wake()

    def _reap(self) -> bool:
        """Collect a child that has ended; True when there is nothing left to collect."""
        if not self._child:
            return True
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:  # killed with its whole group, and waited for so
            self._child = False
            leftovers.LED.discard(self.pid)
            return True
        if pid == 0:
            return False
        self._child = False
        leftovers.LED.discard(self.pid)
        self.status = os.waitstatus_to_exitcode(status)
        own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.usage = Usage(
            cpu_user_seconds=round(usage.ru_utime, 6),
            cpu_system_seconds=round(usage.ru_stime, 6),
            max_rss_bytes=usage.ru_maxrss * 1024 if usage.ru_maxrss > own_peak else None,
        )
        return True
