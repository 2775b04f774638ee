"""Periodic work of dispatch: starts delayed jobs, ends jobs whose runner is gone or that take too long. A delayed job
starts within a second of its start time. All else is checked at least every `lease_seconds`, so a lost notification or
a crash delays a job by about a minute. A runner's silence counts only while the cell could receive its calls: from zero
again after the store was unavailable or the process was blocked (`core.waiting.downtime`)."""

import asyncio
import math
from collections.abc import Awaitable, Sequence

from remuda.cell.core.jobs import leases, lifecycle, stuck_jobs
from remuda.cell.core.jobs.family import Outcome
from remuda.cell.core.waiting.downtime import Outage
from remuda.cell.dispatch.job_changes import JobChanges
from remuda.cell.dispatch.memory import DispatchMemory
from remuda.cell.dispatch.store_sync import StoreSync
from remuda.cell.errors import StoreError
from remuda.cell.operations.downtime import DowntimeFile
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.values import Job, Page, Project, Runner
from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_any_event
from remuda.model.job import STARTED, FailureReason, JobState, ProjectId, RunnerId
from remuda.telemetry.logs import logger

_ALL = Page(size=100_000)
_BLOCKED = 0.25
"""If a sweep is late by this part of a lease, the process was blocked."""

_log = logger("cell")


class Timeouts:
    def __init__(
        self,
        store: Store,
        memory: DispatchMemory,
        sync: StoreSync,
        changes: JobChanges,
        presence: DowntimeFile,
        clock: Clock,
        settings: CellSettings,
    ) -> None:
        self.presence = presence
        self._store = store
        self._memory = memory
        self._sync = sync
        self._changes = changes
        self._clock = clock
        self._settings = settings

    async def watch(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, start delayed jobs when they are due, and periodically check all jobs for timeouts."""
        sweep_at, is_away, heard_at = -math.inf, False, self._clock.now()
        while not stop.is_set():
            self._memory.has_new_delayed_job.clear()
            try:
                late = self._clock.now() - sweep_at
                if late >= 0:
                    if is_away or self._settings.lease_seconds * _BLOCKED <= late < math.inf:
                        self._memory.listening_since = self._clock.now()
                        self.presence.add(Outage(heard_at if is_away else sweep_at, self._memory.listening_since))
                    sweep_at, is_away = await self._sweep(), False
                pause = min(sweep_at, await self._start_due()) - self._clock.now()
                heard_at = self._clock.now()
            except StoreError as error:
                _log.warning(
                    "store unavailable; timeout sweep postponed",
                    error=str(error),
                    retry_seconds=error.retry_after_seconds,
                )
                pause, sweep_at = float(error.retry_after_seconds), -math.inf
                is_away = is_away or not await self._can_write_store()
            await wait_for_any_event(
                self._clock, stop, self._memory.has_new_delayed_job, within_seconds=pause, name="sweep"
            )

    async def _can_write_store(self) -> bool:
        try:
            await self._store.check_writable()
        except StoreError:
            return False
        return True

    async def _start_due(self) -> float:
        """Start due delayed jobs; fail those late by `stale_seconds`. Returns when the next is due (infinity: none)."""
        now = self._clock.now()
        delayed = [(job.scheduled_at or now, job) for job in await self._store.jobs.list_jobs_in([JobState.SCHEDULED])]
        for _, job in delayed:
            if verdict := stuck_jobs.check_stale(job, self._settings, now):
                await self._run_logged(self._drop(job, verdict), job=job.id)
        for pipeline_id in dict.fromkeys(job.pipeline_id for due_at, job in delayed if due_at <= now):
            await self._run_logged(
                self._changes.change(pipeline_id, lambda family: lifecycle.start_due(family, now)), pipeline=pipeline_id
            )
        return min((due_at for due_at, _ in delayed if due_at > now), default=math.inf)

    async def _sweep(self) -> float:
        """Fail or requeue jobs whose runner is gone, that run too long or that no runner can take; queue jobs whose
        resource group is free. Returns the time of the next check: when the next runner will have been silent too long,
        at most `lease_seconds` from now, because a job may be handed out meanwhile."""
        now = self._clock.now()
        next_at = now + self._settings.lease_seconds
        since, outages = self._memory.listening_since, self.presence.outages
        assigned = await self._sync.load_assigned()
        for job in assigned:
            gone_at = leases.deadline(job, self._settings, since=since, now=now, outages=outages)
            if gone_at is None or gone_at > now:
                next_at = min(next_at, gone_at or next_at)
            else:
                await self._run_logged(self._take_back(job), job=job.id)
        await self._fail_overtime(assigned, now)
        await self._drop_stuck(await self._sync.load_pending())
        self._memory.announce([job for job in assigned if job.is_trigger])
        waiting = await self._store.jobs.list_jobs_in([JobState.WAITING_FOR_RESOURCE])
        for pipeline_id in dict.fromkeys(job.pipeline_id for job in waiting):
            await self._run_logged(self._changes.resume(pipeline_id), pipeline=pipeline_id)
        return next_at

    async def _drop_stuck(self, pending: Sequence[Job]) -> None:
        now = self._clock.now()
        since, outages = self._memory.listening_since, self.presence.outages
        old = [
            job
            for job in pending
            if stuck_jobs.may_be_stuck(job, self._settings, since=since, now=now, outages=outages)
        ]
        if not old:
            return
        runners, _ = await self._store.runners.list_runners(_ALL)
        assigned = self._memory.assigned_jobs.values()
        busy = frozenset(job.runner_id for job in assigned if job.runner_id is not None)
        offers = stuck_jobs.online_offers(runners, await self._store.runners.list_all_managers(), busy, now)
        for job in old:
            if verdict := stuck_jobs.check_stuck(job, offers, self._settings, now):
                await self._run_logged(self._drop(job, verdict), job=job.id)

    async def _drop(self, job: Job, verdict: stuck_jobs.Verdict) -> None:
        reason, message = verdict
        _log.warning("failing a job by decision of the cell", job=job.id, reason=reason.value, cause=message)
        outcome = Outcome(succeeded=False, reason=reason, message=message)
        now = self._clock.now()
        await self._changes.change(job.pipeline_id, lambda family: lifecycle.drop(family, job, outcome, now))

    async def _fail_overtime(self, assigned: Sequence[Job], now: float) -> None:
        """Fail the `assigned` jobs that still run long after their timeout, because their runner did not end them."""
        since, outages = self._memory.listening_since, self.presence.outages
        projects: dict[ProjectId, Project | None] = {}
        runners: dict[RunnerId | None, Runner | None] = {None: None}
        for job in assigned:
            if not stuck_jobs.may_be_overtime(job, self._settings, now):
                continue
            if job.project_id not in projects:
                projects[job.project_id] = await self._store.projects.load_project(job.project_id)
            if job.runner_id is not None and job.runner_id not in runners:
                runners[job.runner_id] = await self._store.runners.load_runner(job.runner_id)
            timeout = stuck_jobs.timeout_of(job, projects[job.project_id], runners[job.runner_id])
            if verdict := stuck_jobs.check_overtime(
                job, timeout, self._settings, since=since, now=now, outages=outages
            ):
                await self._run_logged(self._changes.fail(job, *verdict), job=job.id)

    async def _run_logged(self, change: Awaitable[object], **about: int) -> None:
        """Await one change of the sweep. An unexpected error is logged with the ids in `about`, so that the sweep
        continues. StoreError is raised, because further changes would fail, too."""
        try:
            await change
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            _log.error(
                "timeout of a job or pipeline not handled; trying again with the next sweep", **about, exc_info=error
            )

    async def _take_back(self, job: Job) -> None:
        """Handle a job whose runner is gone: fail the job if it has started, else put it back into the queue."""
        if job.state in STARTED:
            is_running = job.state is JobState.RUNNING
            reason = FailureReason.NO_UPDATES_RUNNING if is_running else FailureReason.NO_UPDATES_CANCELING
            await self._changes.fail(job, reason, "its runner has not contacted the cell for too long")
        else:
            _log.warning(
                "runner did not acknowledge a job within its lease; returning the job to the queue",
                job=job.id,
                runner=job.runner_id,
                epoch=job.epoch,
            )
            await self._changes.release(job)
