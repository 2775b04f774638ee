"""Reads the step results of a job in pages, so that many results neither fill memory nor block the event loop. A
separate module because dispatch and several HTTP endpoints use it."""

import asyncio
from collections.abc import AsyncGenerator

from remuda.cell.store.ports import JobStore
from remuda.cell.values import StepResult
from remuda.model.job import JobId

PAGE = 100


async def read_results(jobs: JobStore, job_id: JobId, *, after: int = 0) -> AsyncGenerator[StepResult, None]:
    """Yield the step results of a job with sequence numbers above `after`, in order."""
    while page := await jobs.list_results(job_id, after=after, limit=PAGE):
        for result in page:
            yield result
        if len(page) < PAGE:
            return
        after = page[-1].seq
        await asyncio.sleep(0)
