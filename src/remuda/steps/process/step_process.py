"""The process of a shim or worker as the agent sees it: notices its end, signals its group, and collects its usage.

A shim that this agent has started reports the end of its command over a socket, its *line*. A worker (`fork_server`)
reports over its socket that it waits for the next step. The end of other processes is noticed through a pidfd, or by
polling every 50 ms. A child is reaped when it ends, whether or not a caller still waits for it."""

import asyncio
import contextlib
import os
import resource
import signal
from collections.abc import Callable

from remuda.lib.dataclass import dataclass
from remuda.lib.waiting import LightEvent
from remuda.steps.process import leftovers, shim
from remuda.steps.process.fork_server import Worker
from remuda.steps.process.job_processes import LED
from remuda.steps.process.kernel import Pulse

_BLOCK_BYTES = 512
_ON_ITS_WAY_SECONDS = 0.001
"""Pause before the next attempt to reap a child that has closed its line: it does so a moment before it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Resource usage of a step's processes. Processes for which their parents did not wait are not included."""

    cpu_user_seconds: float
    cpu_system_seconds: float
    max_rss_bytes: int | None
    """None if it is not above the agent's own: a new process starts with its parent's peak."""
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None

    def to_result(self) -> dict[str, float | int | None]:
        return {
            "cpu_user_seconds": self.cpu_user_seconds,
            "cpu_system_seconds": self.cpu_system_seconds,
            "max_rss_bytes": self.max_rss_bytes,
        } | ({} if self.io_read_bytes is None else self._io_bytes())

    def _io_bytes(self) -> dict[str, float | int | None]:
        return {"io_read_bytes": self.io_read_bytes, "io_write_bytes": self.io_write_bytes}


class _Own:
    peak = 0


class StepProcess:
    """The process that runs a step: a shim (parent of the command) or a worker. Exists from when the agent has started
    it, or found it running after a restart, until it has ended."""

    def __init__(
        self,
        pid: int,
        *,
        start: int | None,
        child: bool,
        pulse: Pulse,
        wake: Callable[[], None],
        line: int = -1,
        worker: Worker | None = None,
    ) -> None:
        self.pid = pid
        self.waits = False
        """True for a worker that has ended its step and waits for another one."""
        self._worker = worker
        self.exited = LightEvent()
        self.reported = LightEvent()
        """Set when the shim has written the exit code of its command into the pid file, or has ended itself."""
        self.usage: Usage | None = None
        self.status: int | None = None
        """Exit status of a child: an exit code, or a signal below 0."""
        self._child = child
        if child:
            LED.add(pid)
        self._wake = wake
        self._pulse = pulse
        self._start = start
        self._pidfd = -1
        self._line = line
        self._seen_alive = True
        if line >= 0:
            asyncio.get_running_loop().add_reader(line, self._hear)
            return
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._note_dead()
            return
        except (OSError, AttributeError):  # no pidfd in this kernel or Python
            pulse.add(self._check)
        # Checked after the pidfd is open: from here on the process id cannot be reused unnoticed.
        if start is not None and shim.start_time(pid) != start:
            self._note_dead()
        elif self._pidfd >= 0:
            asyncio.get_running_loop().add_reader(self._pidfd, self._note_end)
        if worker is not None and not self.exited.is_set():
            asyncio.get_running_loop().add_reader(worker.line, self._hear_worker)

    def release(self) -> Worker | None:
        """Give up the worker. If it waits for another step, return it: the caller must use or dismiss it. Otherwise
        close the socket to it, so that it exits after its step, and return None. Also None if the process is a shim."""
        worker, self._worker = self._worker, None
        if worker is None or self.waits:
            return worker
        asyncio.get_running_loop().remove_reader(worker.line)
        worker.leave()
        return None

    def _hear_worker(self) -> None:
        assert self._worker is not None
        asyncio.get_running_loop().remove_reader(self._worker.line)
        with contextlib.suppress(OSError):
            self.waits = bool(os.read(self._worker.line, 64))
        # Else it has ended itself, which the pidfd reports.
        if self.waits:
            self._note_end()

    def dismiss(self) -> None:
        """Let the shim exit: after the end of its command it waits for this. A shim that an earlier agent started is
        killed instead."""
        if self._line >= 0:
            with contextlib.suppress(OSError):
                os.write(self._line, b"\n")
        elif self._seen_alive and not self.exited.is_set():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)

    def signal_group(self, number: int) -> None:
        """Send a signal to the step's process group. Does nothing if the process had ended before this agent started to
        watch it, because its id may have been reused."""
        if self._seen_alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def group_lives(self) -> bool:
        if not self._seen_alive:
            return False
        if self.exited.is_set():
            # Dead children of the shim are the agent's children now.
            leftovers.reap_all(-self.pid)
        return leftovers.group_exists(self.pid)

    def _hear(self) -> None:
        try:
            is_report = bool(os.read(self._line, 64))
        except OSError:
            is_report = False
        if is_report:
            self.reported.set()
            self._wake()
            return
        asyncio.get_running_loop().remove_reader(self._line)
        os.close(self._line)
        self._line = -1
        self._check_until_exit()

    def _note_dead(self) -> None:
        self._seen_alive = False
        self._note_end()

    def _check(self) -> None:
        if self._reap() if self._child else shim.start_time(self.pid) != self._start:
            self._note_end()

    def _check_until_exit(self) -> None:
        self._check()
        if not self.exited.is_set():
            asyncio.get_running_loop().call_later(_ON_ITS_WAY_SECONDS, self._check_until_exit)

    def _note_end(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self._pulse.remove(self._check)
        if not self.waits:
            self.release()
        self._reap()
        self.exited.set()
        self.reported.set()
        self._wake()

    def _reap(self) -> bool:
        """Reap the process if it is a child that has ended, and store its usage and exit status. Returns False if it
        still runs."""
        if not self._child:
            return True
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:  # `leftovers` has reaped it with its killed process group
            self._child = False
            LED.discard(self.pid)
            return True
        if pid == 0:
            return False
        self._child = False
        LED.discard(self.pid)
        self.status = os.waitstatus_to_exitcode(status)
        peak = usage.ru_maxrss
        if peak > _Own.peak:
            _Own.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.usage = Usage(
            cpu_user_seconds=round(usage.ru_utime, 6),
            cpu_system_seconds=round(usage.ru_stime, 6),
            max_rss_bytes=peak * 1024 if peak > _Own.peak else None,
            io_read_bytes=usage.ru_inblock * _BLOCK_BYTES,
            io_write_bytes=usage.ru_oublock * _BLOCK_BYTES,
        )
        return True
