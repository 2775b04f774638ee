"""Hands jobs out and takes their ends in: the shell around `core/` through which every change of a job goes.

It decides little itself: `core` says what a change comes to, the store makes it so in one transaction, and only then
do the queue in memory, the held polls and the caller learn of it. Everything in memory can be rebuilt from the store
(`start`, and again by every sweep), so a crash or a lost event costs time, never a job. The HTTP edge calls this.

Invariant: a job is handed out again only while it is leased, under a new epoch; once it has started, never.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from remuda.cell.core import leases, lifecycle
from remuda.cell.core.lifecycle import reason_of
from remuda.cell.core.plan import Outcome
from remuda.cell.core.tokens import JobTokens
from remuda.cell.errors import ForbiddenError, MissingDependencyError, NotFoundError, StoreError
from remuda.cell.handout import gather_payload
from remuda.cell.polls import HeldPolls
from remuda.cell.ports import Appended, Applied, Changes, Store, Traces
from remuda.cell.settings import CellSettings
from remuda.cell.values import Family, Job, Pipeline, Runner, StepResult
from remuda.lib import killpoints
from remuda.lib.aio import happens_by
from remuda.lib.clock import Clock
from remuda.model.job import FINAL, HELD, STARTED, FailureReason, JobId, JobState, PipelineId
from remuda.queue import WaitingJobs
from remuda.telemetry.logs import logger
from remuda.wire.routable import TokenError, to_base36
from remuda.wire.runner_api import JobPayload, RequestJob, UpdateJob

_SHORT_TRACE_PATIENCE_SECONDS = 300
"""How long a final state is put off because the runner says that its trace has more bytes than have arrived."""


class Handout(msgspec.Struct, frozen=True, kw_only=True):
    """A job for the runner that asked."""

    job: Job
    payload: JobPayload


class NoJob(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing now. The cursor goes back to the runner, which shows it with its next request."""

    cursor: str


class Updated(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a job's update: a status code, and the job for the Job-Status header."""

    code: int
    job: Job


class Dispatch:
    """The cell's jobs in motion."""

    def __init__(self, store: Store, traces: Traces, clock: Clock, settings: CellSettings, tokens: JobTokens) -> None:
        self._store = store
        self._traces = traces
        self._clock = clock
        self._settings = settings
        self._tokens = tokens
        self._waiting = WaitingJobs()
        self._polls = HeldPolls(self._waiting, clock)
        self._since = clock.now()
        self._enqueued = 0
        self._short_since: dict[JobId, float] = {}
        self._ending: set[JobId] = set()
        self._log = logger("cell")

    async def start(self) -> None:
        """Put into the queue what waits in the store."""
        self._since = self._clock.now()
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
        """Take note of jobs that were stored: pending ones wait for a runner, others do not."""
        arrived = 0
        for job in jobs:
            if job.state is not JobState.PENDING:
                self._waiting.discard(job.id)
            elif job.id not in self._waiting:
                self._waiting.add(job.id, job.key())
                arrived += 1
        self._enqueued += arrived
        for _ in range(min(arrived, len(self._polls))):
            self._polls.wake()

    # handing out

    async def request_job(
        self, runner: Runner, request: RequestJob, *, request_id: str, ip: str, gone: asyncio.Event
    ) -> Handout | NoJob:
        """The job this runner gets, or none; held while there is none if the runner has a cursor."""
        if request_id and (again := await self._store.leased_by_request(runner.id, request_id)):
            self._log.info("job handed out again to the same request", job=again.id, runner=runner.id)
            return await self._deliver(again, runner, ip=ip, gone=gone)
        ends_at = self._clock.monotonic() + (self._settings.poll_hold_seconds if request.last_update else 0)
        while not (self._polls.stopped or runner.paused or gone.is_set()):
            job = await self._claim(runner, request, request_id)
            if job is not None:
                return await self._deliver(job, runner, ip=ip, gone=gone)
            if not await self._polls.hold(runner.fingerprint(), ends_at - self._clock.monotonic(), gone):
                break
            now_runner = await self._store.runner(runner.id)
            if now_runner is None:
                break
            runner = now_runner
        self._polls.wake()
        return NoJob(cursor=self.cursor)

    async def _claim(self, runner: Runner, request: RequestJob, request_id: str) -> Job | None:
        """Lease the first waiting job that fits; a job that was lost to someone else is dropped."""
        features = (request.info.features if request.info else None) or {}
        fingerprint = runner.fingerprint()
        try:
            while (job_id := self._waiting.choose(fingerprint)) is not None:
                now = self._clock.now()
                terms = leases.Lease(
                    runner_id=runner.id,
                    system_id=request.system_id,
                    request_id=request_id or None,
                    until=now + self._settings.lease_seconds,
                    graceful_cancel=bool(features.get("cancel_gracefully")),
                )
                if (job := await self._lease(job_id, terms, now)) is not None:
                    return job
            return None
        finally:
            self._polls.wake()

    async def _lease(self, job_id: JobId, terms: leases.Lease, now: float) -> Job | None:
        key = self._waiting.discard(job_id)
        try:
            return await self._store.change_job(job_id, lambda job: leases.lease(job, terms, now))
        except BaseException:
            # Whether it was stored is unknown. If it was, the next one to choose it finds out, and the lease ends.
            if key is not None:
                self._waiting.add(job_id, key)
            raise

    async def _deliver(self, job: Job, runner: Runner, *, ip: str, gone: asyncio.Event) -> Handout | NoJob:
        killpoints.reach("cell.leased")
        try:
            handout = await self._handout(job, runner)
        except NotFoundError as error:
            await self._end_unasked(job, FailureReason.DATA_INTEGRITY_FAILURE, str(error))
            return NoJob(cursor=self.cursor)
        except MissingDependencyError as error:
            await self._end_unasked(job, FailureReason.MISSING_DEPENDENCY_FAILURE, str(error))
            return NoJob(cursor=self.cursor)
        except StoreError:
            with contextlib.suppress(StoreError):
                await self.release(job)
            raise
        if gone.is_set():
            await self.release(job)
            return NoJob(cursor=self.cursor)
        self._log.info("job handed out", job=job.id, runner=runner.id, system_id=job.system_id, ip=ip, epoch=job.epoch)
        return handout

    async def _handout(self, job: Job, runner: Runner) -> Handout:
        payload = await gather_payload(
            self._store,
            self._tokens,
            job,
            runner,
            public_url=self._settings.public_url,
            now=self._clock.now(),
        )
        return Handout(job=job, payload=payload)

    async def release(self, job: Job) -> None:
        """The runner vanished before it spoke: the job waits again, and this hand-out's token is dead."""
        now = self._clock.now()
        await self._change(job.pipeline_id, lambda family: lifecycle.release(family, job.id, job.epoch, now))

    # what a runner says about its job

    async def holder(self, token: str, job_id: int | None = None, *, ended: bool = False) -> Job:
        """The job that this token opens; ForbiddenError when it opens none, or not `job_id`.

        A token opens a job while a runner has it. With `ended` also afterwards, for what a runner may send twice.
        """
        try:
            claims = self._tokens.read(token, now=self._clock.now())
        except TokenError as error:
            raise ForbiddenError(f"the job token is not accepted: {error}") from None
        job = await self._store.job(JobId(claims.job_id))
        if job is None or (job_id is not None and job.id != job_id):
            raise ForbiddenError("the job token belongs to another job")
        if job.epoch != claims.epoch:
            raise ForbiddenError("the job was handed out anew; this token is of an earlier hand-out")
        if job.state not in HELD and not (ended and job.state in FINAL):
            raise ForbiddenError(f"the job is {job.status()}", job_status=job.status())
        return job

    async def touch(self, job: Job) -> Job:
        """The runner spoke: a leased job has started now, a started one is alive."""
        now = self._clock.now()
        if not leases.needs_touch(job, now, self._settings.silent_seconds):
            return job
        if job.state is JobState.LEASED and not await self._is_known_to_run(job.pipeline_id):
            applied = await self._change(
                job.pipeline_id, lambda family: lifecycle.acknowledge(family, job.id, job.epoch, now)
            )
            touched = next((changed for changed in applied.jobs if changed.id == job.id), None)
        else:
            touched = await self._store.change_job(job.id, lambda row: leases.acknowledge(row, job.epoch, now))
        if touched is None:
            raise self._lost(await self._store.job(job.id))
        if job.state is JobState.LEASED:
            killpoints.reach("cell.acknowledged")
        return touched

    async def _is_known_to_run(self, pipeline_id: PipelineId) -> bool:
        """Whether a further start changes nothing about the pipeline, so that its other jobs need not be read."""
        pipeline = await self._store.pipeline(pipeline_id)
        return pipeline is not None and pipeline.status == "running" and pipeline.started_at is not None

    async def append_trace(self, job: Job, start: int, data: bytes) -> Appended:
        """Add to the log. Of a job that is over only bytes are taken that are there already."""
        if job.state in FINAL:
            appended = await self._traces.append(job.id, start, data)
            if not appended.taken:
                raise self._lost(job)
            return appended
        job = await self.touch(job)
        size = await self._traces.size(job.id)
        if start <= size and start + len(data) > self._settings.trace_limit_bytes:
            await self._end_unasked(
                job,
                FailureReason.TRACE_SIZE_EXCEEDED,
                f"the log is limited to {self._settings.trace_limit_bytes} bytes",
            )
            raise ForbiddenError("the log is too large", job_status=JobState.FAILED.value)
        appended = await self._traces.append(job.id, start, data)
        if not appended.taken and start <= appended.size and await self._goes_on(job):
            # Sealed for an end that could then not be stored.
            await self._traces.reopen(job.id)
            appended = await self._traces.append(job.id, start, data)
        if appended.taken:
            killpoints.reach("cell.trace_appended")
        return appended

    async def _goes_on(self, job: Job) -> bool:
        row = await self._store.job(job.id)
        return row is not None and row.epoch == job.epoch and row.state in HELD and job.id not in self._ending

    async def add_results(self, job: Job, results: Sequence[StepResult]) -> int:
        """Store step results; the next sequence number wanted."""
        if job.state in FINAL:
            raise self._lost(job)
        await self.touch(job)
        following = await self._store.add_results(job.id, results)
        killpoints.reach("cell.result_stored")
        return following

    async def update(self, job: Job, update: UpdateJob, *, refused: str | None = None) -> Updated:
        """Take in what a runner says of its job's state. `refused`: why the cell cannot let a success be one."""
        if update.state == "running" and job.state in HELD:
            return Updated(code=200, job=await self.touch(job))
        if update.state not in ("success", "failed", "running"):
            return Updated(code=400, job=job)
        if job.state in FINAL:
            return Updated(code=200 if job.reported == update.state else 403, job=job)
        if await self._lacks_trace(job, update):
            return Updated(code=202, job=await self.touch(job))
        self._ending.add(job.id)
        try:
            return await self._end(job, update, refused)
        finally:
            self._ending.discard(job.id)

    async def _end(self, job: Job, update: UpdateJob, refused: str | None) -> Updated:
        # The trace is durable before the end is stored: a job that is over has its whole log.
        size, checksum = await self._traces.seal(job.id)
        succeeded = update.state == "success" and refused is None
        outcome = Outcome(
            succeeded=succeeded,
            reason=None if succeeded else reason_of("script_failure" if refused else update.failure_reason),
            message=refused,
            exit_code=(update.exit_code or 0) if succeeded else update.exit_code,
            reported=update.state,
            trace_bytes=size,
            trace_checksum=checksum,
        )
        ended = await self._finish(job, outcome)
        if ended is None:
            row = await self._store.job(job.id)
            if row is None or row.epoch != job.epoch or row.reported != update.state:
                raise self._lost(row)
            return Updated(code=200, job=row)
        killpoints.reach("cell.finished")
        self._log.info("job ended", job=job.id, state=ended.state.value, reason=ended.failure_reason)
        return Updated(code=200, job=ended)

    async def _lacks_trace(self, job: Job, update: UpdateJob) -> bool:
        """Whether the runner says it logged more than has arrived; believed for some minutes, then the end counts."""
        said = update.output.bytesize if update.output else None
        if said is None or said <= await self._traces.size(job.id):
            return False
        now = self._clock.monotonic()
        return now - self._short_since.setdefault(job.id, now) < _SHORT_TRACE_PATIENCE_SECONDS

    # what people want

    async def cancel_job(self, job_id: int) -> Job:
        """Stop a job: at once, or gracefully where its runner can. One that is over stays as it is."""
        return await self._act(job_id, lifecycle.cancel)

    async def play_job(self, job_id: int) -> Job:
        """Start a manual job."""
        return await self._act(job_id, lambda family, found, now: lifecycle.play(family, found, now, {}))

    async def retry_job(self, job_id: int) -> Job:
        """Run a job once more, as a new one, which is returned."""
        old = await self._job(job_id)
        applied = await self._change(old.pipeline_id, lambda family: lifecycle.retry(family, old.id, self._clock.now()))
        return next(job for job in applied.jobs if job.name == old.name and job.id != old.id)

    async def cancel_pipeline(self, pipeline_id: int) -> Pipeline:
        """Stop all jobs of a pipeline."""
        return await self._act_on_pipeline(pipeline_id, lifecycle.cancel_all)

    async def retry_pipeline(self, pipeline_id: int) -> Pipeline:
        """Run what failed or was canceled once more."""
        return await self._act_on_pipeline(pipeline_id, lifecycle.retry_all)

    async def _act(self, job_id: int, decide: Callable[[Family, JobId, float], Changes]) -> Job:
        job = await self._job(job_id)
        await self._change(job.pipeline_id, lambda family: decide(family, job.id, self._clock.now()))
        return await self._job(job_id)

    async def _act_on_pipeline(self, pipeline_id: int, decide: Callable[[Family, float], Changes]) -> Pipeline:
        found = PipelineId(pipeline_id)
        await self._change(found, lambda family: decide(family, self._clock.now()))
        pipeline = await self._store.pipeline(found)
        if pipeline is None:
            raise NotFoundError(f"there is no pipeline {pipeline_id}")
        return pipeline

    async def _job(self, job_id: int) -> Job:
        job = await self._store.job(JobId(job_id))
        if job is None:
            raise NotFoundError(f"there is no job {job_id}")
        return job

    # what time brings

    async def watch(self, stop: asyncio.Event) -> None:
        """Until told to stop: take jobs back from runners that are gone, and look whether the queue misses some."""
        while not stop.is_set():
            try:
                pause = await self._sweep() - self._clock.now()
            except StoreError as error:
                self._log.warning("the store is not usable", error=str(error))
                pause = float(error.retry_after_seconds)
            await happens_by(self._clock, stop, within_seconds=pause, name="sweep")

    async def _sweep(self) -> float:
        """Do what is due, and say when something can be due next.

        A lease given out meanwhile lasts longer than the pause this allows, so it needs no further signal.
        """
        now = self._clock.now()
        next_at = now + self._settings.lease_seconds
        for job in await self._store.jobs_in(HELD):
            gone_at = leases.deadline(
                job,
                since=self._since,
                lease_seconds=self._settings.lease_seconds,
                silent_seconds=self._settings.silent_seconds,
            )
            if gone_at is None or gone_at > now:
                next_at = min(next_at, gone_at or next_at)
            elif job.state in STARTED:
                running = job.state is JobState.RUNNING
                reason = FailureReason.NO_UPDATES_RUNNING if running else FailureReason.NO_UPDATES_CANCELING
                await self._end_unasked(job, reason, "the runner has not been heard of for too long")
            else:
                self._log.warning("lease ended without a word", job=job.id, runner=job.runner_id, epoch=job.epoch)
                await self.release(job)
        await self.announce(await self._store.jobs_in([JobState.PENDING]))
        return next_at

    async def _end_unasked(self, job: Job, reason: FailureReason, message: str) -> None:
        """End a job that its runner did not end, unless the runner spoke meanwhile."""
        self._log.warning("job ended by the cell", job=job.id, reason=reason.value)
        outcome = Outcome(succeeded=False, reason=reason, message=message)
        await self._finish(job, outcome, unless_changed=True)

    # storing

    async def change(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        """Store what somebody else decided about a pipeline, and let everything follow that follows any change."""
        return await self._change(pipeline_id, decide)

    async def _finish(self, job: Job, outcome: Outcome, *, unless_changed: bool = False) -> Job | None:
        """The job after its end; None when it is not this epoch's any more."""
        now = self._clock.now()

        def decide(family: Family) -> Changes:
            if unless_changed and job not in family.jobs:
                return Changes()
            return lifecycle.finish(family, job.id, job.epoch, outcome, now)

        applied = await self._change(job.pipeline_id, decide)
        return next((changed for changed in applied.jobs if changed.id == job.id), None)

    async def _change(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        """Store a decision, then let the queue and the traces follow."""
        applied = await self._store.change_family(pipeline_id, decide)
        await self.announce(applied.jobs)
        for job in applied.jobs:
            if job.state in FINAL:
                self._short_since.pop(job.id, None)
            if job.state in FINAL and job.started_at is not None and job.trace_checksum is None:
                await self._archive(job)
        return applied

    async def _archive(self, job: Job) -> None:
        """Seal the trace of a job that ended without its runner. If that fails the trace stays readable as it is."""
        try:
            size, checksum = await self._traces.seal(job.id)
            await self._store.change_job(job.id, lambda row: replace(row, trace_bytes=size, trace_checksum=checksum))
        except StoreError as error:
            self._log.warning("trace not archived", job=job.id, error=str(error))

    @staticmethod
    def _lost(job: Job | None) -> ForbiddenError:
        status = job.status() if job else None
        return ForbiddenError(f"the job is not this runner's any more (it is {status or 'gone'})", job_status=status)
