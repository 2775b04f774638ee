"""Resource usage of a whole job, summed up from the results of its steps. Pure, except for the size of a folder.

Processor time and disk traffic are added; for memory the highest peak of one step counts. A control group of the
whole job also counts processes outside of steps; its values are used where they are larger. Network traffic is not
measured, because processes share the machine's network."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

MOST_SECONDS = 0.25
"""A folder whose measuring takes longer has an unknown size."""
_ADDED = {
    "cpu_user_seconds": "cpu_user_seconds",
    "cpu_system_seconds": "cpu_system_seconds",
    "io_read_bytes": "disk_read_bytes",
    "io_write_bytes": "disk_written_bytes",
}
_PEAKS = ("memory_peak_bytes", "max_rss_bytes")
"""The better one first: the other includes shared pages."""


class Account:
    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._peak = 0
        self._by_groups = False

    def add(self, used: Mapping[str, Any]) -> None:
        for name, total in _ADDED.items():
            if isinstance(value := used.get(name), int | float):
                self._sums[total] = self._sums.get(total, 0) + value
        peaks = [used[name] for name in _PEAKS if isinstance(used.get(name), int)]
        self._peak = max([self._peak, *peaks[:1]])
        self._by_groups = self._by_groups or "memory_peak_bytes" in used

    def count_whole(self, used: Mapping[str, Any]) -> None:
        """Use what a control group counted for the whole job, instead of the sums over its steps, where it is more."""
        for name, total in _ADDED.items():
            if isinstance(value := used.get(name), int | float):
                self._sums[total] = max(self._sums.get(total, 0), value)
        self._peak = max(self._peak, used.get("memory_peak_bytes", 0))
        self._by_groups = self._by_groups or "memory_peak_bytes" in used

    def total(self, work_dir_bytes: int | None = None) -> dict[str, Any]:
        total: dict[str, Any] = {name: round(value, 6) for name, value in self._sums.items()}
        if self._peak:
            total["memory_peak_bytes"] = self._peak
        if total:
            total["source"] = "cgroup" if self._by_groups else "rusage"
        if work_dir_bytes is not None:
            total["work_dir_bytes"] = work_dir_bytes
        return total


def folder_size(folder: Path, *, within_seconds: float = MOST_SECONDS) -> int | None:
    """Return the bytes that a folder uses on disk; None if it is missing or measuring exceeds `within_seconds`."""
    if not folder.is_dir():
        return None
    deadline, total, waiting = time.monotonic() + within_seconds, 0, [os.fspath(folder)]
    while waiting:
        if time.monotonic() > deadline:
            return None
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total
