"""Identifies and ends processes of machines. Blocking: called in threads.

A machine is the process that `launch.sh` becomes. For the kind `namespace` its child is the first process in the
machine's process namespace: all others end when it ends, and it disappears only after them."""

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

from remuda.lib.dataclass import dataclass

GONE_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """Identity of a process that stays unique when its number is reused."""

    pid: int
    start_ticks: int
    """Start time in clock ticks since the boot of this host."""


def read_process_id(text: str) -> ProcessId | None:
    """Parse the file `pid` that `launch.sh` writes; None if it has another content."""
    words = text.split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return None
    return ProcessId(pid=int(words[0]), start_ticks=int(words[1]))


def start_ticks(stat: str) -> int:
    """Start time in clock ticks from the text of /proc/PID/stat, whose name in brackets may contain any character."""
    return int(stat.rpartition(")")[2].split()[19])


def end(process: ProcessId) -> bool:
    """Kill the process of a machine, its children and its process group, and wait up to `GONE_SECONDS` for each. False
    if the process or a child still exists."""
    opened: list[int] = []
    try:
        leader = _open_process(process.pid)
        if leader is None:
            return True
        opened.append(leader)
        if not _is_running(process):
            return True
        # Stopped, it cannot start further children while they are listed.
        _send(leader, signal.SIGSTOP)
        for child in _children(process.pid):
            if (inner := _open_process(child)) is not None:
                opened.append(inner)
                _send(inner, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return all(_is_gone(descriptor) for descriptor in opened)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _is_running(process: ProcessId) -> bool:
    try:
        return start_ticks(Path(f"/proc/{process.pid}/stat").read_text()) == process.start_ticks
    except (OSError, ValueError, IndexError):
        return False


def _open_process(pid: int) -> int | None:
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
