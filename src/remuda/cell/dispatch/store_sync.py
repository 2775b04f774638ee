"""Updates the dispatch memory from the store, which processes may share. Notifications of others (`follow`) come soon
but may be lost, so the periodic check of `timeouts` reads all waiting and assigned jobs again."""

from collections.abc import Sequence
from contextlib import aclosing

from remuda.cell.dispatch.memory import DispatchMemory
from remuda.cell.errors import StoreError
from remuda.cell.store.ports import Store
from remuda.cell.values import Job
from remuda.lib.clock import Clock
from remuda.model.job import ASSIGNED, JobState
from remuda.telemetry.logs import logger

_log = logger("cell")


class StoreSync:
    def __init__(self, store: Store, memory: DispatchMemory, clock: Clock) -> None:
        self._store = store
        self._memory = memory
        self._clock = clock

    async def load(self) -> None:
        """Fill the memory at the start of the process with the jobs that runners have and those that wait for one."""
        self._memory.listening_since = self._clock.now()
        await self.load_assigned()
        self._memory.announce(await self._store.jobs.list_jobs_in([JobState.PENDING]))

    async def load_assigned(self) -> Sequence[Job]:
        """Read and return the jobs that runners have and running trigger jobs; replace the assigned ones in memory."""
        with self._memory.record_changes() as changes:
            jobs = await self._store.jobs.list_jobs_in(ASSIGNED)
            newest = {job.id: job for job in jobs} | changes
        self._memory.replace_assigned(newest.values())
        return jobs

    async def load_pending(self) -> Sequence[Job]:
        """Read and return the pending jobs; add them to the queue in memory, and remove those no longer pending."""
        waiting = list(self._memory.waiting_jobs)
        pending = await self._store.jobs.list_jobs_in([JobState.PENDING])
        self._memory.announce(pending)
        if not_pending := set(waiting) - {job.id for job in pending}:
            self._memory.announce(await self._store.jobs.load_jobs(not_pending))
        return pending

    async def follow(self) -> None:
        """Read jobs that other processes report as changed, except trigger jobs, into memory, until cancelled. Held
        requests of runners that they have changed are matched again."""
        async with aclosing(self._store.watch_changes()) as changes:
            async for change in changes:
                job_ids = change.job_ids
                for runner_id in change.runner_ids:
                    self._memory.held_polls.rematch(runner_id)
                if change.runner_ids and not job_ids:
                    continue
                self._memory.changed_jobs.note(*job_ids)
                self._memory.job_cache.forget(*job_ids)
                if not job_ids:
                    self._memory.held_polls.rematch_all()
                try:
                    if job_ids:
                        jobs = await self._store.jobs.load_jobs(job_ids)
                    else:
                        jobs = await self._store.jobs.list_jobs_in([JobState.PENDING])
                except StoreError as error:
                    _log.warning(
                        "cannot read jobs that another process changed; the next sweep reads them",
                        jobs=len(job_ids),
                        error=str(error),
                    )
                else:
                    # The process that stored a trigger job starts its pipeline.
                    self._memory.announce([job for job in jobs if not job.is_trigger])
