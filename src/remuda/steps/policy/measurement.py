"""Measures usage that the kernel does not limit: the size of a folder, and without control groups memory and processes.

A measurement is late by up to one interval and covers no other folders, so such a limit is called advisory, although a
step that exceeds it is ended."""

import asyncio
import math
from pathlib import Path

from remuda.lib.clock import Clock
from remuda.steps.job_files.job_usage import folder_size
from remuda.steps.process import usage
from remuda.steps.process.usage import format_bytes

LOOK_SECONDS = 2.0
"""Between two measurements; longer if one takes long."""
SHARE = 20
"""Measurements may take at most one part in SHARE of the time."""


def folder_bytes(folder: Path) -> int:
    """Return the disk usage of a folder in bytes; 0 if it does not exist. Slow, so run it in a thread."""
    return folder_size(folder, within_seconds=math.inf) or 0


async def until_exceeded(
    *,
    folder: Path,
    disk_bytes: int | None,
    disk_before: int = 0,
    session: int,
    memory_bytes: int | None,
    pids: int | None,
    clock: Clock,
) -> str:
    """Measure until a limit is exceeded, then return a message. `disk_bytes` limits the growth of `folder` since it had
    `disk_before` bytes; `memory_bytes` and `pids` limit the processes of `session`. Never returns if all are None."""
    if disk_bytes is None and memory_bytes is None and pids is None:
        await asyncio.Event().wait()
    while True:
        began = clock.monotonic()
        if disk_bytes is not None:
            size = await asyncio.to_thread(folder_bytes, folder)
            if error := disk_error(size, disk_bytes, before=disk_before):
                return error
        if memory_bytes is not None or pids is not None:
            used = (await asyncio.to_thread(usage.of_sessions, {session})).get(session, usage.Used())
            if memory_bytes is not None and used.memory_bytes > memory_bytes:
                reached, limit = format_bytes(used.memory_bytes), format_bytes(memory_bytes)
                return f"the step used {reached} of memory; its limit is {limit}"
            if pids is not None and used.processes > pids:
                return f"the step had {used.processes} processes; its limit is {pids}"
        await clock.sleep(max(LOOK_SECONDS, (clock.monotonic() - began) * SHARE))


def disk_error(size: int, limit: int, *, before: int = 0) -> str | None:
    """Error message if the work folder has grown from `before` to `size` by more than `limit` bytes, else None."""
    if size - before <= limit:
        return None
    grown = format_bytes(size - before)
    return f"the work folder grew by {grown} during the step; the disk limit of the step is {format_bytes(limit)}"
