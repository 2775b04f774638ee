"""Every change of a job goes through here: it is stored, then everything else that follows from it is set going.

It decides nothing itself: `core` says what a change comes to, the store makes it so in one transaction, and only then
do the queue in memory, the held polls, the traces, the trigger jobs and the jobs that wait for a resource group learn
of it. All of that can be rebuilt from the store (`start`, and again by every sweep), so a crash or a lost event costs
time, never a job. `claims`, `holders`, `orders` and `sweeps` build on this; `dispatch` puts them together.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from remuda.cell.core.jobs import lifecycle
from remuda.cell.core.jobs.family import Outcome
from remuda.cell.dispatch.assigned_jobs import KnownJobs
from remuda.cell.dispatch.held_polls import HeldPolls
from remuda.cell.dispatch.stop_requests import StopRequests
from remuda.cell.errors import NotFoundError, StoreError
from remuda.cell.events import ChangedJobs
from remuda.cell.operations.downtime import Presence
from remuda.cell.pipelines.trigger_queue import Inbox
from remuda.cell.secrets.key_ring import KeyRing
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store, Traces
from remuda.cell.values import Family, Job, Page, Pipeline
from remuda.cell.values.changes import Applied, Changes
from remuda.lib.clock import Clock
from remuda.model.job import FINAL, HELD, OCCUPYING, FailureReason, JobId, JobState, PipelineId, ProjectId
from remuda.model.progress import OVER
from remuda.queue import WaitingJobs
from remuda.queue.pickups import PickUps
from remuda.telemetry.logs import logger
from remuda.wire.routable_token import to_base36

_NEWEST = 1000


class Motion:
    """What all parts of dispatch share."""

    def __init__(
        self,
        store: Store,
        traces: Traces,
        clock: Clock,
        settings: CellSettings,
        keys: KeyRing,
        presence: Presence | None = None,
    ) -> None:
        self.presence = presence or Presence(clock)
        self.trigger_jobs = Inbox()
        self.changed_jobs = ChangedJobs()
        self.stops = StopRequests(clock)
        self._store = store
        self._traces = traces
        self._clock = clock
        self._settings = settings
        self._keys = keys
        self._waiting = WaitingJobs()
        self._polls = HeldPolls(self._waiting, clock)
        self._pick_ups = PickUps()
        self._newest: OrderedDict[JobId, Job] = OrderedDict()
        """Those that were last enqueued, as they were then: most are handed out like that, without being read again."""
        self._with_runners: dict[JobId, Job] = {}
        """As each was when it was handed out."""
        self._known = KnownJobs(clock)
        self._noted: dict[JobId, Job] | None = None
        """What became of jobs while the store is asked which ones are with runners; None while it is not."""
        self._busy: Counter[ProjectId] = Counter()
        self._since = clock.now()
        self._enqueued = 0
        self._scheduled = asyncio.Event()
        """A delayed job has got its time."""
        self._ending: set[JobId] = set()
        self._starting: dict[PipelineId, asyncio.Event] = {}
        """Pipelines with which a job is about to start that may be their first; set when that is stored, or is not."""
        self.ended_jobs: Counter[str] = Counter()
        """How many this process ended, by their states."""
        self.ended_pipelines: Counter[str] = Counter()
        """The same by statuses; one that a retry opened again ends twice."""
        self._log = logger("cell")

    async def start(self) -> None:
        """Put into the queue what waits in the store."""
        self._since = self._clock.now()
        await self._count_with_runners()
        await self.announce(await self._store.jobs_in([JobState.PENDING]))

    def waiting(self) -> int:
        """How many jobs wait for a runner."""
        return len(self._waiting)

    def held_polls(self) -> int:
        """How many requests are held."""
        return len(self._polls)

    def stop_polls(self) -> None:
        """Answer all held requests now, and later ones at once: the cell stops."""
        self._polls.stop()

    @property
    def cursor(self) -> str:
        """Where the queue stands: the cell, this process, and how often something was enqueued."""
        return f"c{self._settings.cell_id}-{to_base36(int(self._since * 1000))}-{to_base36(self._enqueued)}"

    async def announce(self, jobs: Sequence[Job]) -> None:
        """Take note of jobs that were stored: pending ones wait for a runner, trigger jobs for the cell, others not."""
        arrived = 0
        for job in jobs:
            self._known.forget(job.id)
            self.stops.note(job)
            if job.is_trigger:
                if job.state in OCCUPYING:
                    self.trigger_jobs.put(job.id)
            elif job.state is not JobState.PENDING:
                self._waiting.discard(job.id)
            elif self._was_handed_out_since(job):
                continue
            elif job.id not in self._waiting:
                self._waiting.add(job.id, job.key(), priority=job.priority, since=job.pending_at or job.created_at)
                self._note_newest(job)
                arrived += 1
            else:
                self._waiting.prioritize(job.id, job.priority)
                continue
            self._note(job)
            self.changed_jobs.note(job.id)
            if job.state is JobState.SCHEDULED:
                self._scheduled.set()
        self._enqueued += arrived
        for _ in range(min(arrived, len(self._polls))):
            # Where none of these fits a held poll, a look at all polls for each of them would only take time.
            if not self._polls.wake():
                break

    def _note_newest(self, job: Job) -> None:
        self._newest[job.id] = job
        if len(self._newest) > _NEWEST:
            self._newest.popitem(last=False)

    def _was_handed_out_since(self, job: Job) -> bool:
        """Whether this process has handed a job out since it was read as pending."""
        held = self._with_runners.get(job.id)
        return held is not None and held.epoch > job.epoch

    def _note(self, job: Job) -> None:
        """Keep count of what each project has with runners: the one that has less comes first."""
        if self._noted is not None:
            self._noted[job.id] = job
        is_there = _is_with_runner(job)
        if is_there is (job.id in self._with_runners):
            return
        if is_there:
            self._with_runners[job.id] = job
            self._busy[job.project_id] += 1
        else:
            del self._with_runners[job.id]
            self._busy[job.project_id] -= 1
        self._waiting.occupy(job.project_id, self._busy[job.project_id])
        if not self._busy[job.project_id]:
            del self._busy[job.project_id]

    async def _count_with_runners(self) -> Sequence[Job]:
        """The jobs that runners have and the cell's own, counted anew: other processes hand jobs out and end them, too.

        What this one did while the store was asked is newer than the store's answer.
        """
        self._noted = {}
        try:
            held = await self._store.jobs_in(HELD)
            known = {job.id: job for job in held} | self._noted
        finally:
            self._noted = None
        self.stops.note_all(known.values())
        before = set(self._busy)
        self._with_runners = {job_id: job for job_id, job in known.items() if _is_with_runner(job)}
        self._busy = Counter(job.project_id for job in self._with_runners.values())
        for project_id in before | set(self._busy):
            self._waiting.occupy(project_id, self._busy[project_id])
        return held

    async def follow(self) -> None:
        """Take note of what other processes of the cell stored. Sweeps make up for what is not heard of."""
        async with aclosing(self._store.changes()) as changes:
            async for told in changes:
                self.changed_jobs.note(*told)
                self._known.forget(*told)
                try:
                    jobs = await (self._store.some_jobs(told) if told else self._store.jobs_in([JobState.PENDING]))
                except StoreError as error:
                    self._log.warning("what another process stored is not known yet", error=str(error))
                else:
                    # Trigger jobs and delayed ones are with the process that stored them.
                    await self.announce([job for job in jobs if not job.is_trigger])

    async def change(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        """Store a decision, then let everything else follow."""
        before: Family | None = None

        def noted(family: Family) -> Changes:
            nonlocal before
            before = family  # of the last time, if it has to be decided anew
            return decide(family)

        applied = await self._store.change_family(pipeline_id, noted)
        self.count_ends(before, applied)
        await self.announce(applied.jobs)
        for job in applied.jobs:
            is_over = job.state in FINAL and not job.is_trigger
            if is_over and job.started_at is not None and job.trace_checksum is None:
                await self._archive(job)
        if applied.pipeline and applied.pipeline.upstream_job_id is not None:
            self.trigger_jobs.put(applied.pipeline.upstream_job_id)
        try:
            await self._let_others_follow(pipeline_id, applied)
        except StoreError as error:
            self._log.warning("a change is stored, but not all that follows from it", error=str(error))
        return applied

    def count_ends(self, before: Family | None, applied: Applied) -> None:
        """Count what ended by a change of a family, or, without one before, was over when it was stored."""
        were_over = {job.id for job in before.jobs if job.state in FINAL} if before else frozenset()
        self.ended_jobs.update(
            job.state.value for job in applied.jobs if job.state in FINAL and job.id not in were_over
        )
        was_over = before is not None and before.pipeline.status in OVER
        if applied.pipeline and applied.pipeline.status in OVER and not was_over:
            self.ended_pipelines[applied.pipeline.status] += 1

    async def _let_others_follow(self, pipeline_id: PipelineId, applied: Applied) -> None:
        """What a change means for other pipelines. If it is not stored, sweeps make up for it where a job waits."""
        ended = [job for job in applied.jobs if job.state in FINAL]
        had = {(job.project_id, job.resource_group) for job in ended if job.pending_at is not None}
        has = {(job.project_id, job.resource_group) for job in applied.jobs if job.state in OCCUPYING}
        for project_id, group in had - has:
            if group:
                await self._pass_on(project_id, group)
        if any(job.state is JobState.FAILED and not (job.allow_failure or job.retried) for job in ended):
            pipeline = applied.pipeline or await self._store.pipeline(pipeline_id)
            if pipeline is not None and pipeline.cancel_on_job_failure == "all":
                await self.cancel_children(pipeline_id)

    async def _pass_on(self, project_id: ProjectId, group: str) -> None:
        """Give a resource group that may be free to the job that waits for it longest.

        If it does not take it, somebody else has it, or the job does not wait any more, which is passed on in its turn.
        """
        oldest = await self._store.first_of_group(project_id, group, [JobState.WAITING_FOR_RESOURCE])
        if oldest is not None:
            await self.resume(oldest.pipeline_id)

    async def resume(self, pipeline_id: PipelineId) -> Applied:
        """Let the pipeline's jobs have the resource groups that are free."""
        return await self.change(pipeline_id, lambda family: lifecycle.resume(family, self._clock.now()))

    async def cancel_pipeline(self, pipeline_id: int) -> Pipeline:
        """Stop all jobs of a pipeline, and its child pipelines."""
        found = PipelineId(pipeline_id)
        await self.change(found, lambda family: lifecycle.cancel_all(family, self._clock.now()))
        await self.cancel_children(found)
        return await self._pipeline(found)

    async def cancel_children(self, pipeline_id: PipelineId) -> None:
        """Stop the child pipelines of all tries of its trigger jobs."""
        page = 1
        while True:
            jobs, total = await self._store.jobs(
                Page(number=page, size=100), pipeline_id=pipeline_id, with_retried=True, is_trigger=True
            )
            for job in jobs:
                child = await self._store.downstream(job.id)
                if child is not None and child.is_child and child.status not in OVER:
                    await self.cancel_pipeline(child.id)
            if page * 100 >= total:
                return
            page += 1

    async def _finish(self, job: Job, outcome: Outcome, *, unless_changed: bool = False) -> Job | None:
        """The job after its end; None when it is not this epoch's any more."""
        now = self._clock.now()
        alone = lifecycle.finish_alone(job, job.epoch, outcome, now)
        if alone is not None and await self._store.end_beside(job, alone):
            self.ended_jobs[alone.state.value] += 1
            await self.announce([alone])
            return alone

        def decide(family: Family) -> Changes:
            if unless_changed and job not in family.jobs:
                return Changes()
            return lifecycle.finish(family, job.id, job.epoch, outcome, now)

        applied = await self.change(job.pipeline_id, decide)
        return next((changed for changed in applied.jobs if changed.id == job.id), None)

    async def _end_unasked(self, job: Job, reason: FailureReason, message: str, *, before_script: bool = False) -> None:
        """End a job that its runner did not end, unless the runner spoke meanwhile."""
        self._log.warning("job ended by the cell", job=job.id, reason=reason.value)
        outcome = Outcome(succeeded=False, reason=reason, message=message, before_script=before_script)
        await self._finish(job, outcome, unless_changed=True)

    async def _archive(self, job: Job) -> None:
        """Seal the trace of a job that ended without its runner. If that fails the trace stays readable as it is."""
        try:
            size, checksum = await self._traces.seal(job.id)
            await self._store.change_job(job.id, lambda row: replace(row, trace_bytes=size, trace_checksum=checksum))
        except StoreError as error:
            self._log.warning("trace not archived", job=job.id, error=str(error))

    async def release(self, job: Job) -> None:
        """The runner vanished before it spoke: the job waits again, and this hand-out's token is dead."""
        now = self._clock.now()
        await self.change(job.pipeline_id, lambda family: lifecycle.release(family, job.id, job.epoch, now))

    async def _job(self, job_id: int) -> Job:
        job = await self._store.job(JobId(job_id))
        if job is None:
            raise NotFoundError(f"there is no job {job_id}")
        return job

    async def _pipeline(self, pipeline_id: PipelineId) -> Pipeline:
        pipeline = await self._store.pipeline(pipeline_id)
        if pipeline is None:
            raise NotFoundError(f"there is no pipeline {pipeline_id}")
        return pipeline


def has_begun(pipeline: Pipeline) -> bool:
    """Whether it runs, and is known to have started: the start of a further job changes nothing about it."""
    return pipeline.status == "running" and pipeline.started_at is not None


def _is_with_runner(job: Job) -> bool:
    return job.state in HELD and not job.is_trigger
