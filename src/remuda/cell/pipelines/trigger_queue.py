"""The queue of trigger jobs to process. It contains each job at most once, and gives a job to one worker at a time.

A job that is put in while a worker processes it is given out again afterwards, so that no change is lost. A module of
its own because dispatch must not import the workers."""

import asyncio

from remuda.model.job import JobId


class TriggerQueue:
    """The trigger jobs of a cell that wait for a worker, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: dict[JobId, None] = {}
        self._in_hand: set[JobId] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_hand)

    def put(self, job_id: JobId) -> None:
        self._waiting[job_id] = None
        self._changed.set()

    async def take(self) -> JobId:
        """Wait for a job, and remove and return the one that waits longest; call `finish` when it is processed."""
        while (job_id := next((waiting for waiting in self._waiting if waiting not in self._in_hand), None)) is None:
            self._changed.clear()
            await self._changed.wait()
        del self._waiting[job_id]
        self._in_hand.add(job_id)
        return job_id

    def finish(self, job_id: JobId) -> None:
        self._in_hand.discard(job_id)
        self._changed.set()
