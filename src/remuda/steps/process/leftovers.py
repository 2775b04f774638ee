"""Processes that a step left running in the background: found when it ends, ended when the job does.

Later steps may use them (a server that after_script asks), so they live as long as the job. The engine ends them before
it stores the job's end, and a new agent finds them in the journal.

A session number is not reused while one of its processes lives, but is after that. So the processes that were seen are
remembered with their start times, and a session is touched only while one of them lives. Programs that start a session
of their own (most daemons) are found by `job_processes`. Children of the agent that have ended are reaped here, too.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from remuda.lib.clock import Clock
from remuda.lib.dataclass import dataclass
from remuda.steps.process import marks, shim
from remuda.steps.process.job_processes import JobProcesses, all_processes, children, children_of, read_stat, send
from remuda.steps.process.kernel import POLL_SECONDS

REAP_SECONDS = 10.0
GRACE_SECONDS = 2.0
"""How long they may take to end by themselves."""
END_SECONDS = 10.0
"""How long killed processes are waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What one step left behind: its session, and number and start time of each process in it."""

    session: int
    processes: tuple[tuple[int, int], ...]


def find(claim: tuple[int, int], key: str = "", *, worker_waits: bool = False) -> Leftover | None:
    """What is left of a step whose shim, with this number and start time, has ended. If the start time is not known
    (0), only processes with the job's mark count, because the number may be reused. `worker_waits`: the worker has not
    ended, but does not belong to the step any more."""
    if worker_waits:
        return _beside(claim[0])
    reap_all(-claim[0])
    if not group_exists(claim[0]) or (claim[1] and shim.start_time(claim[0]) not in (None, claim[1])):
        return None
    processes = tuple(process for process in _in_session(claim[0]) if process[1] >= claim[1])
    if not claim[1] and not any(marks.has_mark(pid, key) for pid, _ in processes):
        return None
    return Leftover(session=claim[0], processes=processes) if processes else None


def _beside(leader: int) -> Leftover | None:
    """The other processes in a worker's session. They are children of the worker, or orphans that this process has
    adopted."""
    others = _in_session(leader, [*children(), *children_of(leader)])
    processes = tuple(dict.fromkeys(process for process in others if process[0] != leader))
    return Leftover(session=leader, processes=processes) if processes else None


async def terminate(job: JobProcesses, clock: Clock) -> None:
    """Let everything of a job end by itself within `GRACE_SECONDS`: SIGTERM, and SIGCONT for stopped processes."""
    if not job.everywhere and job.is_quiet():
        return
    signalled: set[tuple[int, int]] = set()
    deadline = clock.monotonic() + GRACE_SECONDS
    while living := set((await job.look()).items()):
        for process in living - signalled:
            send(*process, signal.SIGTERM)
            send(*process, signal.SIGCONT)
        signalled |= living
        if clock.monotonic() >= deadline:
            return
        await asyncio.sleep(POLL_SECONDS)


async def end(job: JobProcesses) -> tuple[str, ...]:
    """Kill everything of a job until nothing is left. Returns descriptions of processes that do not end."""
    if not job.everywhere and job.is_quiet():
        return ()
    return await asyncio.to_thread(job.kill, END_SECONDS)


def kill(leftovers: Sequence[Leftover]) -> None:
    """Kill the sessions that steps left behind, at once. Processes outside of them are for `end`."""
    for leftover in leftovers:
        _signal_each(_list_living(leftover), signal.SIGKILL)
    reap_soon([pid for leftover in leftovers for pid, _ in leftover.processes])


def end_session(session: int, *, since: int) -> None:
    """Kill what is left of a session that this process began, also in other process groups; at once."""
    pids = [pid for pid, start in _in_session(session) if start >= since]
    _signal_each(pids, signal.SIGKILL)
    reap_soon(pids)


def reap_soon(targets: Sequence[int], tries: int = 100) -> None:
    """Reap children that were killed: processes, or whole groups as negative numbers."""
    if targets and tries:
        asyncio.get_running_loop().call_later(POLL_SECONDS, _reap, targets, tries)


def _reap(targets: Sequence[int], tries: int) -> None:
    reap_soon([target for target in targets if not reap_all(target)], tries - 1)


def reap_all(target: int) -> bool:
    """Reap what has ended. True if nothing is left to wait for."""
    while True:
        try:
            pid, _ = os.waitpid(target, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False


class Reaper:
    """Reaps children that have ended and that nobody waits for: orphans of steps.

    A waiting caller reaps its child at once, so a dead child that is still there after a while is nobody's. One with
    the mark of a job is reaped at once: a job that leaves thousands in a second must not use up all process numbers.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[int, float] = {}

    def look(self) -> None:
        """Reap orphans. Called now and then."""
        now = self._clock.monotonic()
        self._seen = {pid: self._seen.get(pid, now) for pid in children() if _is_dead(pid)}
        for pid, since in self._seen.items():
            if now - since >= REAP_SECONDS or marks.has_any_mark(pid):
                reap_all(pid)


def _is_dead(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.is_dead


def _signal_each(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _list_living(leftover: Leftover) -> list[int]:
    """The processes of the session, while it is certain that it is still the same one."""
    if not any(shim.start_time(pid) == start for pid, start in leftover.processes):
        return []
    return [pid for pid, _ in _in_session(leftover.session)]


def group_exists(group: int) -> bool:
    """True if a process group has a process. Cheap, so that steps that leave nothing cost no search."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _in_session(session: int, among: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """Number and start time of each living process of a session."""
    processes = []
    for pid in all_processes() if among is None else among:
        stat = read_stat(pid)
        if stat is not None and stat.session == session and not stat.is_dead:
            processes.append((pid, stat.start))
    return processes
