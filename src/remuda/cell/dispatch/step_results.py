"""A job's step results, read a page at a time: never all of them lie in memory, and others get their turn in between.

Nothing is decided here but the size of a page. Whoever wants to know of a job's steps calls this.
"""

import asyncio
from collections.abc import AsyncGenerator

from remuda.cell.store.ports import Store
from remuda.cell.values import StepResult
from remuda.model.job import JobId

PAGE = 100


async def read_results(store: Store, job_id: JobId, *, after: int = 0) -> AsyncGenerator[StepResult, None]:
    """All of them with higher numbers, in order."""
    while page := await store.jobs.list_results(job_id, after=after, limit=PAGE):
        for result in page:
            yield result
        if len(page) < PAGE:
            return
        after = page[-1].seq
        await asyncio.sleep(0)
