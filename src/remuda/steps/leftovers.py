"""Processes that a step left running in the background: found when it ends, ended when the job does.

Later steps may use them (a server that after_script asks), so they live as long as the job. Then nothing of a job
stays: `runner` has them end before it stores the job's end, and a new agent finds them in the journal.

A session number belongs to nobody else while one of its processes lives, but is given away again after that. So the
processes that were seen are remembered with their start times, and a session is touched only while one of them lives.
A program that starts a session of its own (setsid, most daemons) is found by the mark that every process of a job has
in its environment. The agent is the *subreaper* of what it started, so that whoever has lost its parent is its child:
few processes to look at. For a job that an earlier agent began, all processes of the machine are. Out of reach is only
what has both left its session and cleared its environment. What ended as the agent's child is waited for here, too.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from remuda.lib.clock import Clock
from remuda.lib.values import dataclass
from remuda.steps import shim
from remuda.steps.kernel import POLL_SECONDS

MARK = "REMUDA_JOB_KEY"
"""The variable that every process of a job has."""

REAP_SECONDS = 10.0
LED: set[int] = set()
"""Children of this process that are the leaders of running steps."""

GRACE_SECONDS = 2.0
"""How long they may take to end by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What one step left behind: its session, and the number and start time of each process in it."""

    session: int
    processes: tuple[tuple[int, int], ...]


def find(claim: tuple[int, int], key: str = "", *, leader_waits: bool = False) -> Leftover | None:
    """What lives of a step whose shim, with this number and start time, has ended. Where the start time is not known
    (0), only what has the mark of the job counts: the number may be somebody else's by now. `leader_waits`: it has not
    ended, but is no part of the step any more."""
    if leader_waits:
        return _beside(claim[0])
    reaped(-claim[0])
    if not _group_exists(claim[0]) or (claim[1] and shim.start_time(claim[0]) not in (None, claim[1])):
        return None
    processes = tuple(process for process in _in_session(claim[0]) if process[1] >= claim[1])
    if not claim[1] and not _marked(key, [pid for pid, _ in processes]):
        return None
    return Leftover(session=claim[0], processes=processes) if processes else None


def _beside(leader: int) -> Leftover | None:
    """What was left is a child of the leader, or of this process by now."""
    others = _in_session(leader, [*children(), *_children_of(leader)])
    processes = tuple(dict.fromkeys(process for process in others if process[0] != leader))
    return Leftover(session=leader, processes=processes) if processes else None


async def end(leftovers: Sequence[Leftover], clock: Clock) -> None:
    """SIGTERM, some time, SIGKILL. Returns when they are gone, or cannot be ended."""
    deadline = clock.monotonic() + GRACE_SECONDS
    remaining = _signal(leftovers, signal.SIGTERM)
    while remaining and clock.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        remaining = [leftover for leftover in remaining if _living(leftover)]
    _signal(remaining, signal.SIGKILL)
    reap_soon([pid for leftover in leftovers for pid, _ in leftover.processes])


def kill(leftovers: Sequence[Leftover]) -> None:
    """The same at once."""
    _signal(leftovers, signal.SIGKILL)
    reap_soon([pid for leftover in leftovers for pid, _ in leftover.processes])


async def end_marked(key: str, clock: Clock, *, everywhere: bool) -> None:
    """The same for what has left its session; `everywhere`: also what is not the agent's child."""
    deadline = clock.monotonic() + GRACE_SECONDS
    found = remaining = await _marked_anywhere(key) if everywhere else _marked(key, children())
    _signal_each(remaining, signal.SIGTERM)
    while remaining and clock.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        remaining = _marked(key, remaining)
    _signal_each(remaining, signal.SIGKILL)
    reap_soon(found)


async def kill_marked(key: str) -> None:
    """All of it at once."""
    found = await _marked_anywhere(key)
    _signal_each(found, signal.SIGKILL)
    reap_soon(found)


def end_session(session: int, *, since: int) -> None:
    """Kill what is left of a session that this process began then, also in groups of its own; at once."""
    found = [pid for pid, start in _in_session(session) if start >= since]
    _signal_each(found, signal.SIGKILL)
    reap_soon(found)


def reap_soon(targets: Sequence[int], tries: int = 100) -> None:
    """Wait for children that were told to end: processes, or whole groups as negative numbers."""
    if targets and tries:
        asyncio.get_running_loop().call_later(POLL_SECONDS, _reap, targets, tries)


def _reap(targets: Sequence[int], tries: int) -> None:
    reap_soon([target for target in targets if not reaped(target)], tries - 1)


def reaped(target: int) -> bool:
    """Collect what has ended; whether nothing is left to wait for."""
    while True:
        try:
            pid, _ = os.waitpid(target, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False


def children() -> list[int]:
    """Of this process, without those that somebody here waits for: with thousands of jobs these are thousands."""
    return [pid for pid in _children_of(os.getpid()) if pid not in LED]


def _children_of(parent: int) -> list[int]:
    """Or all processes, where the kernel does not tell."""
    try:
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return _all_processes()


class Reaper:
    """Clears away children that have ended and that nobody waits for: those that lost their parents to a step's end.

    Whoever waits for a child does so at once, so one that is still there after a while is nobody's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[int, float] = {}

    def look(self) -> None:
        """Called now and then."""
        now = self._clock.monotonic()
        self._seen = {pid: self._seen.get(pid, now) for pid in children() if _is_dead(pid)}
        for pid, since in self._seen.items():
            if now - since >= REAP_SECONDS:
                reaped(pid)


def _is_dead(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 :][:1] == b"Z"


async def _marked_anywhere(key: str) -> list[int]:
    """Among all processes of the machine: other jobs must not wait for that. Looked at again here, where nobody gives a
    number away before it is used."""
    return _marked(key, await asyncio.to_thread(lambda: _marked(key, _all_processes())))


def _marked(key: str, among: Sequence[int]) -> list[int]:
    """Processes with the mark of a job that live."""
    mark = f"{MARK}={key}".encode()
    found = []
    for pid in among:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if mark in environ.split(b"\0") and pid != os.getpid():
            found.append(pid)
    return found


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _signal_each(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _signal(leftovers: Sequence[Leftover], number: int) -> list[Leftover]:
    """Signal whatever lives; those that had something alive."""
    found = []
    for leftover in leftovers:
        living = _living(leftover)
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if living:
            found.append(leftover)
    return found


def _living(leftover: Leftover) -> list[int]:
    """The processes of the session, while it is certain that it is still the same one."""
    if not any(shim.start_time(pid) == start for pid, start in leftover.processes):
        return []
    return [pid for pid, _ in _in_session(leftover.session)]


def _group_exists(group: int) -> bool:
    """Cheap, so that steps that leave nothing cost no search."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _in_session(session: int, among: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """Number and start time of each process of a session that is not dead already."""
    found = []
    for pid in _all_processes() if among is None else among:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            continue
        fields = stat[stat.rindex(b")") + 2 :].split()
        if int(fields[3]) == session and fields[0] not in (b"Z", b"X"):
            found.append((pid, int(fields[19])))
    return found
