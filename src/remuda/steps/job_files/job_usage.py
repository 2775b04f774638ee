"""What a whole job has used, summed up from what its steps tell. Pure, but for the size of a folder.

Processor time and what went to and from disks are added, of memory the most counts that one step had. Steps that were
run by another agent are in it. What ran beside steps, or was left running by them, only counts where control groups
count it: that of a slot has all of a job, its containers too, and is believed where it has more. Bytes of a network
are not known: processes share the machine's.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_SECONDS = 0.25
"""A folder that takes longer to look through has no size here."""
_ADDED = {
    "cpu_user_seconds": "cpu_user_seconds",
    "cpu_system_seconds": "cpu_system_seconds",
    "io_read_bytes": "disk_read_bytes",
    "io_write_bytes": "disk_written_bytes",
}
_PEAKS = ("memory_peak_bytes", "max_rss_bytes")
"""The better one first: the other has pages in it that a process shares with everybody."""


class Account:
    """Of one job."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._peak = 0
        self._by_groups = False

    def add(self, used: Mapping[str, Any]) -> None:
        """`usage` of a step's result."""
        for name, known_as in _ADDED.items():
            if isinstance(value := used.get(name), int | float):
                self._sums[known_as] = self._sums.get(known_as, 0) + value
        peaks = [used[name] for name in _PEAKS if isinstance(used.get(name), int)]
        self._peak = max([self._peak, *peaks[:1]])
        self._by_groups = self._by_groups or "memory_peak_bytes" in used

    def count_whole(self, used: Mapping[str, Any]) -> None:
        """What was counted for the whole job at once. Its containers may not be in there."""
        for name, known_as in _ADDED.items():
            if isinstance(value := used.get(name), int | float):
                self._sums[known_as] = max(self._sums.get(known_as, 0), value)
        self._peak = max(self._peak, used.get("memory_peak_bytes", 0))
        self._by_groups = self._by_groups or "memory_peak_bytes" in used

    def total(self, work_dir_bytes: int | None = None) -> dict[str, Any]:
        """As clients are told; what is not known is not there."""
        told: dict[str, Any] = {name: round(value, 6) for name, value in self._sums.items()}
        if self._peak:
            told["memory_peak_bytes"] = self._peak
        if told:
            told["source"] = "cgroup" if self._by_groups else "rusage"
        if work_dir_bytes is not None:
            told["work_dir_bytes"] = work_dir_bytes
        return told


def folder_size(folder: Path, *, within_seconds: float = MOST_SECONDS) -> int | None:
    """What a folder takes on its disk; None when it is not there, or that would take too long."""
    if not folder.is_dir():
        return None
    deadline, total, waiting = time.monotonic() + within_seconds, 0, [os.fspath(folder)]
    while waiting:
        if time.monotonic() > deadline:
            return None
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue
    return total
