"""What time brings: delayed jobs start, runners that are gone lose their jobs, and what was missed is made up for.

Decided here: when to look. A delayed job starts at its very second; everything else is looked at often enough that a
lost event or a crash costs a minute at most. Silence counts only while the cell could hear: it begins anew when the
store was away or the process was held up, as long as that is not so all the time (`core.presence`). What each look
comes to is decided in `core`. `remuda.cell.service` runs `watch`.
"""

import asyncio
import math
from collections.abc import Awaitable, Sequence

from remuda.cell.core.jobs import leases, lifecycle, stuck_jobs
from remuda.cell.core.jobs.family import Outcome
from remuda.cell.core.waiting.downtime import Outage
from remuda.cell.dispatch.job_changes import Motion
from remuda.cell.errors import StoreError
from remuda.cell.values import Job, Page, Project, Runner
from remuda.lib.waiting import happens_by
from remuda.model.job import STARTED, FailureReason, JobState, ProjectId, RunnerId

_ALL = Page(size=100_000)


_HELD_UP = 0.25
"""A look that comes later than planned by this part of a lease shows that the process was held up."""


class Sweeps(Motion):
    """The part of dispatch that looks by itself."""

    async def watch(self, stop: asyncio.Event) -> None:
        """Until told to stop: start what is due, take jobs back from runners that are gone, look what was missed."""
        sweep_at, is_away, heard_at = -math.inf, False, self._clock.now()
        while not stop.is_set():
            self._scheduled.clear()
            try:
                late = self._clock.now() - sweep_at
                if late >= 0:
                    if is_away or self._settings.lease_seconds * _HELD_UP <= late < math.inf:
                        self._since = self._clock.now()
                        self.presence.add(Outage(heard_at if is_away else sweep_at, self._since))
                    sweep_at, is_away = await self._sweep(), False
                pause = min(sweep_at, await self._start_due()) - self._clock.now()
                heard_at = self._clock.now()
            except StoreError as error:
                self._log.warning("the store is not usable", error=str(error))
                pause, sweep_at = float(error.retry_after_seconds), -math.inf
                is_away = is_away or not await self._has_store()
            await happens_by(self._clock, stop, self._scheduled, within_seconds=pause, name="sweep")

    async def _has_store(self) -> bool:
        """Whether the store takes anything at all. One that refuses one change only was not away."""
        try:
            await self._store.writable()
        except StoreError:
            return False
        return True

    async def _start_due(self) -> float:
        """Start the delayed jobs whose time has come, and say when the next one's comes."""
        now = self._clock.now()
        scheduled = [(job.scheduled_at or now, job) for job in await self._store.jobs_in([JobState.SCHEDULED])]
        for _, job in scheduled:
            if verdict := stuck_jobs.stale(job, self._settings, now):
                await self._apart(self._drop(job, verdict))
        for pipeline_id in dict.fromkeys(job.pipeline_id for at, job in scheduled if at <= now):
            await self._apart(self.change(pipeline_id, lambda family: lifecycle.start_due(family, now)))
        return min((at for at, _ in scheduled if at > now), default=math.inf)

    async def _sweep(self) -> float:
        """Do what is due, and say when something can be due next.

        A lease given out meanwhile lasts longer than the pause this allows, so it needs no further signal.
        """
        now = self._clock.now()
        next_at = now + self._settings.lease_seconds
        held = await self._count_with_runners()
        for job in held:
            gone_at = leases.deadline(job, self._settings, since=self._since, now=now, outages=self.presence.outages)
            if gone_at is None or gone_at > now:
                next_at = min(next_at, gone_at or next_at)
            else:
                await self._apart(self._take_back(job))
        await self._end_overtime(held, now)
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
        await self._drop_stuck(pending)
        if gone := set(known) - {job.id for job in pending}:
            await self.announce(await self._store.some_jobs(gone))

    async def _drop_stuck(self, pending: Sequence[Job]) -> None:
        """Fail the jobs that nobody takes."""
        now = self._clock.now()
        away = self.presence.outages
        old = [
            job
            for job in pending
            if stuck_jobs.may_be_stuck(job, self._settings, since=self._since, now=now, outages=away)
        ]
        if not old:
            return
        runners, _ = await self._store.runners(_ALL)
        has_jobs = frozenset(job.runner_id for job in self._with_runners.values() if job.runner_id is not None)
        offers = stuck_jobs.online(runners, await self._store.all_managers(), has_jobs, now)
        for job in old:
            if verdict := stuck_jobs.stuck_pending(job, offers, self._settings, now):
                await self._apart(self._drop(job, verdict))

    async def _drop(self, job: Job, verdict: stuck_jobs.Verdict) -> None:
        """Fail a job that waits, unless something happened to it meanwhile."""
        reason, message = verdict
        self._log.warning("job ended by the cell", job=job.id, reason=reason.value)
        outcome = Outcome(succeeded=False, reason=reason, message=message)
        now = self._clock.now()
        await self.change(job.pipeline_id, lambda family: lifecycle.drop(family, job, outcome, now))

    async def _end_overtime(self, held: Sequence[Job], now: float) -> None:
        """Fail the jobs that run on though their time is over."""
        projects: dict[ProjectId, Project | None] = {}
        runners: dict[RunnerId | None, Runner | None] = {None: None}
        for job in held:
            if not stuck_jobs.may_be_overtime(job, self._settings, now):
                continue
            if job.project_id not in projects:
                projects[job.project_id] = await self._store.project(job.project_id)
            if job.runner_id is not None and job.runner_id not in runners:
                runners[job.runner_id] = await self._store.runner(job.runner_id)
            timeout = stuck_jobs.timeout_of(job, projects[job.project_id], runners[job.runner_id])
            away = self.presence.outages
            if verdict := stuck_jobs.overtime(job, timeout, self._settings, since=self._since, now=now, outages=away):
                await self._apart(self._end_unasked(job, *verdict))

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
