"""Processes that a step left running in the background: found when it ends, ended when the job does.

Later steps may use them (a server that after_script asks), so they live as long as the job. Then nothing of a job
stays: `runner` has them end before it stores the job's end, and a new agent finds them in the journal.

A session number belongs to nobody else while one of its processes lives, but is given away again after that. So the
processes that were seen are remembered with their start times, and a session is touched only while one of them lives.
Out of reach are a program that starts a session of its own (setsid, most daemons), and one in a process group of its
own (`set -m`) where it is all that the step left.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.lib.clock import Clock
from remuda.steps import shim
from remuda.steps.files import StepFiles
from remuda.steps.kernel import POLL_SECONDS

GRACE_SECONDS = 2.0
"""How long they may take to end by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What one step left behind: its session, and the number and start time of each process in it."""

    session: int
    processes: tuple[tuple[int, int], ...]


def find(files: StepFiles) -> Leftover | None:
    """What lives of a step whose shim has ended."""
    claim = shim.claimed(files)
    if claim is None or not _group_exists(claim[0]) or shim.start_time(claim[0]) not in (None, claim[1]):
        return None
    processes = tuple(process for process in _in_session(claim[0]) if process[1] >= claim[1])
    return Leftover(session=claim[0], processes=processes) if processes else None


async def end(leftovers: Sequence[Leftover], clock: Clock) -> None:
    """SIGTERM, some time, SIGKILL. Returns when they are gone, or cannot be ended."""
    deadline = clock.monotonic() + GRACE_SECONDS
    remaining = _signal(leftovers, signal.SIGTERM)
    while remaining and clock.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        remaining = [leftover for leftover in remaining if _living(leftover)]
    _signal(remaining, signal.SIGKILL)


def kill(leftovers: Sequence[Leftover]) -> None:
    """The same at once."""
    _signal(leftovers, signal.SIGKILL)


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


def _in_session(session: int) -> list[tuple[int, int]]:
    """Number and start time of each process of a session that is not dead already."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_bytes()
        except OSError:
            continue
        fields = stat[stat.rindex(b")") + 2 :].split()
        if int(fields[3]) == session and fields[0] not in (b"Z", b"X"):
            found.append((int(folder.name), int(fields[19])))
    return found
