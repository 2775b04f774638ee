"""Jobs that somebody should look at: each waits once however often it is named, and is in one hand at a time.

Nothing is decided here. Dispatch puts trigger jobs in, the workers of `remuda.cell.pipelines.trigger_jobs` take them
out. A job that is named again while somebody looks at it is looked at again afterwards, so that no news is lost.
"""

import asyncio

from remuda.model.job import JobId


class TriggerQueue:
    """The trigger jobs of a cell that are to be looked at."""

    def __init__(self) -> None:
        self._waiting: dict[JobId, None] = {}
        self._in_hand: set[JobId] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_hand)

    def put(self, job_id: JobId) -> None:
        """Look at this one."""
        self._waiting[job_id] = None
        self._changed.set()

    async def take(self) -> JobId:
        """The one that waits longest; `done` gives it back."""
        while (job_id := next((each for each in self._waiting if each not in self._in_hand), None)) is None:
            self._changed.clear()
            await self._changed.wait()
        del self._waiting[job_id]
        self._in_hand.add(job_id)
        return job_id

    def finish(self, job_id: JobId) -> None:
        """It was looked at."""
        self._in_hand.discard(job_id)
        self._changed.set()
