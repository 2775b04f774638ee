"""What time brings: delayed jobs start, runners that are gone lose their jobs, and what was missed is made up for.

Decided here: when to look. A delayed job starts at its very second; everything else is looked at often enough that a
lost event or a crash costs a minute at most. What each look comes to is decided in `core`. `remuda.cell.service` runs
`watch`.
"""

import asyncio
import math
from collections.abc import Awaitable

from remuda.cell.core import leases, lifecycle
from remuda.cell.errors import StoreError
from remuda.cell.motion import Motion
from remuda.cell.values import Job
from remuda.lib.aio import happens_by
from remuda.model.job import HELD, STARTED, FailureReason, JobState


class Sweeps(Motion):
    """The part of dispatch that looks by itself."""

    async def watch(self, stop: asyncio.Event) -> None:
        """Until told to stop: start what is due, take jobs back from runners that are gone, look what was missed."""
        sweep_at = -math.inf
        while not stop.is_set():
            self._scheduled.clear()
            try:
                if sweep_at <= self._clock.now():
                    sweep_at = await self._sweep()
                pause = min(sweep_at, await self._start_due()) - self._clock.now()
            except StoreError as error:
                self._log.warning("the store is not usable", error=str(error))
                pause, sweep_at = float(error.retry_after_seconds), -math.inf
            await happens_by(self._clock, stop, self._scheduled, within_seconds=pause, name="sweep")

    async def _start_due(self) -> float:
        """Start the delayed jobs whose time has come, and say when the next one's comes."""
        now = self._clock.now()
        scheduled = [(job.scheduled_at or now, job) for job in await self._store.jobs_in([JobState.SCHEDULED])]
        for pipeline_id in dict.fromkeys(job.pipeline_id for at, job in scheduled if at <= now):
            await self._apart(self.change(pipeline_id, lambda family: lifecycle.start_due(family, now)))
        return min((at for at, _ in scheduled if at > now), default=math.inf)

    async def _sweep(self) -> float:
        """Do what is due, and say when something can be due next.

        A lease given out meanwhile lasts longer than the pause this allows, so it needs no further signal.
        """
        now = self._clock.now()
        next_at = now + self._settings.lease_seconds
        held = await self._store.jobs_in(HELD)
        self._count_with_runners(held)
        for job in held:
            gone_at = leases.deadline(
                job,
                since=self._since,
                lease_seconds=self._settings.lease_seconds,
                silent_seconds=self._settings.silent_seconds,
            )
            if gone_at is None or gone_at > now:
                next_at = min(next_at, gone_at or next_at)
            else:
                await self._apart(self._take_back(job))
        await self._look_who_waits()
        await self.announce([job for job in held if job.is_trigger])
        waiting = await self._store.jobs_in([JobState.WAITING_FOR_RESOURCE])
        for pipeline_id in dict.fromkeys(job.pipeline_id for job in waiting):
            await self._apart(self.resume(pipeline_id))
        return next_at

    async def _look_who_waits(self) -> None:
        """Other processes of the cell enqueue jobs and hand them out, too."""
        known = list(self._waiting)
        pending = await self._store.jobs_in([JobState.PENDING])
        await self.announce(pending)
        if gone := set(known) - {job.id for job in pending}:
            await self.announce(await self._store.some_jobs(gone))

    async def _apart(self, work: Awaitable[object]) -> None:
        """Do one thing of many: whatever is odd about it, the others get their turn and the cell goes on."""
        try:
            await work
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            self._log.error("a sweep failed in part", exc_info=error)

    async def _take_back(self, job: Job) -> None:
        """The runner that has this job is gone."""
        if job.state in STARTED:
            running = job.state is JobState.RUNNING
            reason = FailureReason.NO_UPDATES_RUNNING if running else FailureReason.NO_UPDATES_CANCELING
            await self._end_unasked(job, reason, "the runner has not been heard of for too long")
        else:
            self._log.warning("lease ended without a word", job=job.id, runner=job.runner_id, epoch=job.epoch)
            await self.release(job)
