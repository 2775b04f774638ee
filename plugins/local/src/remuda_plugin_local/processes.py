"""Whether processes live, and how they end. Blocking: called in threads.

A machine is one process on this host, which `launch.sh` became, and for the kind `namespace` its child, the first in
the machine's own process namespace: with that one all others end, and it is gone only after them.
"""

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

from remuda.lib.dataclass import dataclass

GONE_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """A process, also after its number was given to another one."""

    pid: int
    start_ticks: int
    """When it was started, as the kernel counts since this host's own start."""


def read_process_id(text: str) -> ProcessId | None:
    """As `launch.sh` writes it; None: it is not that."""
    words = text.split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return None
    return ProcessId(pid=int(words[0]), start_ticks=int(words[1]))


def start_ticks(stat: str) -> int:
    """Out of /proc/PID/stat; the name in brackets may hold anything."""
    return int(stat.rpartition(")")[2].split()[19])


def end(process: ProcessId) -> bool:
    """Kill it with all that is its machine, and wait for that; False: it is not gone yet."""
    opened: list[int] = []
    try:
        leader = _opened(process.pid)
        if leader is None:
            return True
        opened.append(leader)
        if not _is(process):
            return True
        # It is to make no more children while they are looked for.
        _send(leader, signal.SIGSTOP)
        for child in _children(process.pid):
            if (inner := _opened(child)) is not None:
                opened.append(inner)
                _send(inner, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return all(_is_gone(one) for one in opened)
    finally:
        for one in opened:
            os.close(one)


def _is(process: ProcessId) -> bool:
    try:
        return start_ticks(Path(f"/proc/{process.pid}/stat").read_text()) == process.start_ticks
    except (OSError, ValueError, IndexError):
        return False


def _opened(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _send(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, number)


def _is_gone(process: int) -> bool:
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    return bool(waiting.poll(GONE_SECONDS * 1000))


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
