"""Long lists of jobs, read a piece at a time: whoever else needs the event loop gets a turn in between.

Nothing is decided here. The stores in a database call it where thousands of jobs may be asked for at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from remuda.cell.values import Job
from remuda.model.job import JobId, JobState

PIECE = 500
"""So many are decoded at a time, which takes some milliseconds."""


async def read_in_pieces(
    job_ids: Sequence[JobId],
    read: Callable[[Collection[JobId]], Awaitable[Sequence[Job]]],
    states: Collection[JobState],
) -> list[Job]:
    """These jobs, without those that are in none of the states any more when they are read."""
    wanted = frozenset(states)
    found: list[Job] = []
    for first in range(0, len(job_ids), PIECE):
        found += [job for job in await read(job_ids[first : first + PIECE]) if job.state in wanted]
        await asyncio.sleep(0)
    return found
