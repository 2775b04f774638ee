"""Processes that a step leaves running in the background: found when the step ends, killed when the job ends.

Later steps may use them (such as a server that after_script calls). They are in the journal, so that an agent finds
them after a restart. The kernel may reuse a session id when all its processes have ended, so they are stored with start
times, and a session is signalled only while one lives. `job_processes` finds those that started their own session."""

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
"""How long leftover processes may take to end after SIGTERM, before they are killed."""
END_SECONDS = 10.0
"""How long to wait for killed processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """The processes that one step left running: session id, and process id and start time of each process."""

    session: int
    processes: tuple[tuple[int, int], ...]


def find(claim: tuple[int, int], key: str = "", *, worker_waits: bool = False) -> Leftover | None:
    """Return the processes that a step left running, if any. `claim`: process id and start time of its ended shim (its
    command's parent); if that time is unknown (0), the id may have been reused, so one of the processes must have the
    mark of the job `key`. `worker_waits`: the step ran in a worker, which now waits for another step."""
    if worker_waits:
        return _find_beside_worker(claim[0])
    reap_all(-claim[0])
    if not group_exists(claim[0]) or (claim[1] and shim.start_time(claim[0]) not in (None, claim[1])):
        return None
    processes = tuple(process for process in _in_session(claim[0]) if process[1] >= claim[1])
    if not claim[1] and not any(marks.has_mark(pid, key) for pid, _ in processes):
        return None
    return Leftover(session=claim[0], processes=processes) if processes else None


def _find_beside_worker(leader: int) -> Leftover | None:
    """Return the processes that a step left running in the session of its worker (the process that ran the step and now
    waits for another). They are searched among the children of the worker and of the agent, because orphans become
    children of the agent."""
    others = _in_session(leader, [*children(), *children_of(leader)])
    processes = tuple(dict.fromkeys(process for process in others if process[0] != leader))
    return Leftover(session=leader, processes=processes) if processes else None


async def terminate(job: JobProcesses, clock: Clock) -> None:
    """Send SIGTERM (and SIGCONT) to all processes of a job, and wait up to `GRACE_SECONDS` for their end."""
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
    """Kill all processes of a job, and wait up to `END_SECONDS`. Returns descriptions of those that still run."""
    if not job.everywhere and job.is_quiet():
        return ()
    return await asyncio.to_thread(job.kill, END_SECONDS)


def kill(leftovers: Sequence[Leftover]) -> None:
    """Send SIGKILL to these sessions, without waiting. `end` kills processes that have left the sessions."""
    for leftover in leftovers:
        _signal_each(_list_living(leftover), signal.SIGKILL)
    reap_soon([pid for leftover in leftovers for pid, _ in leftover.processes])


def end_session(session: int, *, since: int) -> None:
    """Send SIGKILL to all processes of a session, without waiting. `since`: start time of the session's leader.
    Processes that started earlier are spared, because they belong to an older session with the same id."""
    pids = [pid for pid, start in _in_session(session) if start >= since]
    _signal_each(pids, signal.SIGKILL)
    reap_soon(pids)


def reap_soon(targets: Sequence[int], tries: int = 100) -> None:
    """Try `tries` times, every 50 ms, to reap killed children: process ids or negative process group ids."""
    if targets and tries:
        asyncio.get_running_loop().call_later(POLL_SECONDS, _reap, targets, tries)


def _reap(targets: Sequence[int], tries: int) -> None:
    reap_soon([target for target in targets if not reap_all(target)], tries - 1)


def reap_all(target: int) -> bool:
    """Reap all ended children of a process id or negative process group id. Returns False if one still runs."""
    while True:
        try:
            pid, _ = os.waitpid(target, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False


class Reaper:
    """Reaps ended children of the agent for which no other code waits: those with the mark of a job (`marks`) at once,
    others after `REAP_SECONDS`. A job that leaves thousands of zombies in a second must not use up all process ids."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[int, float] = {}

    def look(self) -> None:
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
    """Return process ids of the session; empty if no recorded process lives, as the id may have been reused."""
    if not any(shim.start_time(pid) == start for pid, start in leftover.processes):
        return []
    return [pid for pid, _ in _in_session(leftover.session)]


def group_exists(group: int) -> bool:
    """Return True if the process group contains a process. Much cheaper than a search in /proc."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _in_session(session: int, among: Sequence[int] | None = None) -> list[tuple[int, int]]:
    processes = []
    for pid in all_processes() if among is None else among:
        stat = read_stat(pid)
        if stat is not None and stat.session == session and not stat.is_dead:
            processes.append((pid, stat.start))
    return processes
