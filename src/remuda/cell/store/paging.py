"""Reads long lists of jobs in pieces, so that other tasks of the event loop run in between."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from remuda.cell.values import Job
from remuda.model.job import JobId, JobState

PIECE = 500
"""Jobs that are decoded at a time, which takes some milliseconds."""


async def read_in_pieces(
    job_ids: Sequence[JobId],
    read: Callable[[Collection[JobId]], Awaitable[Sequence[Job]]],
    states: Collection[JobState],
) -> list[Job]:
    """Read jobs by id, some at a time. Returns those that are in one of `states` when they are read."""
    jobs: list[Job] = []
    for first in range(0, len(job_ids), PIECE):
        jobs += [job for job in await read(job_ids[first : first + PIECE]) if job.state in states]
        await asyncio.sleep(0)
    return jobs
