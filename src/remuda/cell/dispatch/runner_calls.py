"""Handles a runner's calls about its job: start, keep-alive, log, step results, end. A reported end is refused while
bytes of the log are missing. Invariant: the log is durable before the end of its job is stored."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec

from remuda.cell.core.jobs import leases, lifecycle, lost_attempts
from remuda.cell.core.jobs.family import Outcome
from remuda.cell.core.jobs.lifecycle import reason_of
from remuda.cell.dispatch.job_cache import has_begun
from remuda.cell.dispatch.job_changes import JobChanges
from remuda.cell.dispatch.memory import DispatchMemory
from remuda.cell.dispatch.step_results import read_results
from remuda.cell.errors import ForbiddenError, StoreError
from remuda.cell.secrets.key_ring import KeyRing
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import JobStore, PipelineStore
from remuda.cell.traces.port import Appended, Traces
from remuda.cell.values import Family, Job, StepResult
from remuda.cell.values.changes import Changes
from remuda.lib import killpoints
from remuda.lib.clock import Clock
from remuda.model.job import ASSIGNED, FINAL, FailureReason, JobId, JobState, PipelineId
from remuda.telemetry.logs import logger
from remuda.wire.job_token import ExpiredError, JobClaims
from remuda.wire.routable_token import TokenError
from remuda.wire.runner_api import MANAGER_NAME, UpdateJob

_TRACE_PATIENCE_SECONDS = 300
"""How long the end of a job is delayed while its trace is shorter than, or differs from, what the runner logged."""
REPORTS_STEPS = MANAGER_NAME
"""Name of managers that send the results of all steps before they send the end of the job."""

_log = logger("cell")


class Updated(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a job update: the HTTP status code, and the job, whose state is sent in the Job-Status header."""

    code: int
    job: Job


class RunnerCalls:
    def __init__(
        self,
        jobs: JobStore,
        pipelines: PipelineStore,
        traces: Traces,
        memory: DispatchMemory,
        changes: JobChanges,
        keys: KeyRing,
        clock: Clock,
        settings: CellSettings,
    ) -> None:
        self._jobs = jobs
        self._pipelines = pipelines
        self._traces = traces
        self._memory = memory
        self._changes = changes
        self._keys = keys
        self._clock = clock
        self._settings = settings
        self._ending: set[JobId] = set()
        """Jobs whose trace is sealed and whose end is being stored."""
        self._starting: dict[PipelineId, asyncio.Event] = {}
        """Pipelines of which a job that may be the first is being started. The event is set when the start is stored
        or has failed."""

    async def authenticate(
        self, token: str, job_id: int | None = None, *, ended: bool = False, scope: str = "job"
    ) -> Job:
        """Return the job of a token, which is valid while a runner has the job. `ended`: also after its end, for calls
        that a runner may repeat; then the job may be some seconds old (`job_cache`), and an expired token makes it
        fail. Raises ForbiddenError if the token is invalid, of another job than `job_id`, or lacks the scope."""
        cache = self._memory.job_cache
        try:
            job = await (self._keys.find_job(token, scope, cache.get) if ended else self._keys.find_job(token, scope))
        except ExpiredError as error:
            if ended and error.claims.job_id == job_id:
                raise await self._fail_expired(error.claims) from None
            raise ForbiddenError(f"the job token is not accepted: {error}") from None
        except TokenError as error:
            raise ForbiddenError(f"the job token is not accepted: {error}") from None
        if job_id is not None and job.id != job_id:
            raise ForbiddenError("the job token belongs to another job")
        if job.state not in ASSIGNED and not (ended and job.state in FINAL):
            raise ForbiddenError(f"the job is {job.status()}", job_status=job.status())
        if job is not cache.get(job.id):
            cache.note(job)
        return job

    def authenticate_from_cache(self, token: str, job_id: int) -> Job | None:
        """Return the job of a token if keys and job are cached. None does not mean invalid: call `authenticate`."""
        job = self._keys.find_cached_job(token, "job", self._memory.job_cache.get)
        return job if job is not None and job.id == job_id and job.state in ASSIGNED else None

    async def _fail_expired(self, claims: JobClaims) -> ForbiddenError:
        """Fail a job that ran until its token expired, because its runner cannot report any more. Returns the error for
        the caller to raise. Nothing changes if the job was handed out again since the token was issued."""
        job = await self._jobs.load_job(JobId(claims.job_id))
        if job is None or job.epoch != claims.epoch or claims.expires_at <= (job.leased_at or 0):
            return ForbiddenError("the job token is not accepted: it has expired")
        if job.state in ASSIGNED:
            message = "it ran on after its timeout, until its token had expired"
            await self._changes.fail(job, FailureReason.JOB_TOKEN_EXPIRED, message)
        row = await self._jobs.load_job(job.id) or job
        return ForbiddenError("the job token has expired", job_status=row.status())

    async def touch(self, job: Job) -> Job:
        """Record a call of the runner: the first one starts the job, later ones show that the runner is alive, and are
        stored only now and then. Raises ForbiddenError if the runner does not have the job any more."""
        now = self._clock.now()
        if not leases.needs_touch(job, now, self._settings):
            return job
        if job.state is JobState.LEASED:
            touched = await self._start(job, now)
        else:
            touched = await self._acknowledge(job, now)
        if touched is None:
            raise _not_assigned(await self._jobs.load_job(job.id))
        self._memory.job_cache.note(touched)
        if job.state is JobState.LEASED:
            killpoints.reach("cell.acknowledged")
            self._memory.changed_jobs.note(job.id)
        return touched

    async def _acknowledge(self, job: Job, now: float) -> Job | None:
        """Store the time of a runner's call, and start the job if it has not started, without reading the pipeline.
        Returns None if the job has ended or was handed out again."""
        return await self._jobs.change_job(job.id, lambda row: leases.acknowledge(row, job.epoch, now), known=job)

    async def _start(self, job: Job, now: float) -> Job | None:
        """Store the start of a job; None if it has ended or was handed out again. The first start in a pipeline changes
        the pipeline, so it reads all its jobs; other starts wait for that, and need not read them."""
        while (other := self._starting.get(job.pipeline_id)) and not self._memory.job_cache.is_in_running(job):
            await other.wait()
        if self._memory.job_cache.is_in_running(job):
            return await self._acknowledge(job, now)
        done = self._starting[job.pipeline_id] = asyncio.Event()
        try:
            moment = self._memory.job_cache.next_moment()
            pipeline = await self._pipelines.load_pipeline(job.pipeline_id)
            if pipeline is None or not has_begun(pipeline):
                return await self._start_first(job, now)
            self._memory.job_cache.note_running(pipeline.id, since=moment)
        finally:
            del self._starting[job.pipeline_id]
            done.set()
        return await self._acknowledge(job, now)

    async def _start_first(self, job: Job, now: float) -> Job | None:
        moment = self._memory.job_cache.next_moment()
        runs = False

        def decide(family: Family) -> Changes:
            nonlocal runs
            changes = lifecycle.acknowledge(family, job.id, job.epoch, now)
            runs = has_begun(changes.pipeline or family.pipeline)
            return changes

        applied = await self._changes.change(job.pipeline_id, decide)
        if runs:
            self._memory.job_cache.note_running(job.pipeline_id, since=moment)
        return next((changed for changed in applied.jobs if changed.id == job.id), None)

    async def append_trace(self, job: Job, start: int, data: bytes, *, is_traced: bool = False) -> Appended:
        """Append to the log at the byte offset `start`; not taken if bytes before are missing or stored ones differ.
        `is_traced`: the scripts of the job print their commands; stored first, so that nobody reads them too early.
        For an ended job, only check that the log has these bytes (a repeated call). Raises ForbiddenError if it does
        not, if the log becomes too large (the job then fails), or if the runner does not have the job any more."""
        if job.state in FINAL:
            appended = await self._traces.compare(job.id, start, data)
            if not appended.taken:
                raise _not_assigned(job)
            return appended
        job = await self.touch(job)
        if is_traced and not job.is_traced:
            job = await self._note(job, lambda row: leases.note_traced(row, job.epoch))
        is_over = start + len(data) > self._settings.trace_limit_bytes
        if is_over and start <= await self._traces.size(job.id):
            await self._changes.fail(
                job,
                FailureReason.TRACE_SIZE_EXCEEDED,
                f"the log is limited to {self._settings.trace_limit_bytes} bytes",
            )
            raise ForbiddenError("the log is too large", job_status=JobState.FAILED.value)
        appended = await self._traces.append(job.id, start, data)
        if _restarts_log(start, data, appended) and await self._drop_refused_log(job):
            appended = await self._traces.append(job.id, start, data)
        if not appended.taken and start <= appended.size:
            row = await self._jobs.load_job(job.id)
            if row is None or row.epoch != job.epoch or row.state not in ASSIGNED:
                raise _not_assigned(row)
            if job.id not in self._ending:
                # The trace was sealed for an end that could not be stored.
                await self._traces.reopen(job.id)
                appended = await self._traces.append(job.id, start, data)
        if appended.taken:
            killpoints.reach("cell.trace_appended")
        return appended

    async def _note(self, job: Job, change: Callable[[Job], Job | None]) -> Job:
        """Store what the runner says about a job. Raises ForbiddenError if `change` returns None: the runner does not
        have the job any more."""
        noted = await self._jobs.change_job(job.id, change, known=job)
        if noted is None:
            raise _not_assigned(await self._jobs.load_job(job.id))
        self._memory.job_cache.note(noted)
        return noted

    def append_trace_now(self, job: Job, start: int, data: bytes) -> Appended | None:
        """Append the next bytes of a log without awaiting; None if that is not possible: then call `append_trace`."""
        is_over = start + len(data) > self._settings.trace_limit_bytes
        if is_over or leases.needs_touch(job, self._clock.now(), self._settings):
            return None
        try:
            appended = self._traces.append_now(job.id, start, data)
        except StoreError:
            return None
        if appended is None or _restarts_log(start, data, appended):
            return None
        killpoints.reach("cell.trace_appended")
        return appended

    async def add_results(self, job: Job, results: Sequence[StepResult]) -> int:
        """Store step results of a job. Returns the sequence number of the result that the runner must send next. Raises
        ForbiddenError if the runner does not have the job any more."""
        if job.state in FINAL:
            raise _not_assigned(job)
        await self.touch(job)
        limit = self._settings.results_total_limit_bytes
        following = await self._jobs.add_results(job.id, results, limit_bytes=limit)
        killpoints.reach("cell.result_stored")
        return following

    async def update_job(
        self,
        job: Job,
        update: UpdateJob,
        *,
        refused: str | None = None,
        read_coverage: Callable[[], Awaitable[float | None]] | None = None,
    ) -> Updated:
        """Apply the job state that a runner reports. `refused`: why a reported success counts as a failure, or None.
        `read_coverage`: reads the coverage from the whole log, so that an ended job has its coverage from the start.
        Status: 200 applied; 202 log bytes missing, 412 wrong log checksum (the runner must send them again); 400
        unknown state; 403 ended with another state. Raises ForbiddenError if the runner has lost the job."""
        if update.state == "running" and job.state in ASSIGNED:
            job, warnings = await self.touch(job), tuple(update.remuda_warnings)
            if warnings and warnings != job.warnings:
                job = await self._note(job, lambda row: leases.note_warnings(row, job.epoch, warnings))
            return Updated(code=200, job=job)
        if update.state not in ("success", "failed", "running"):
            return Updated(code=400, job=job)
        if job.state in FINAL:
            return Updated(code=200 if job.reported == update.state else 403, job=job)
        if await self._lacks_trace(job, update):
            return Updated(code=202, job=await self.touch(job))
        self._ending.add(job.id)
        try:
            return await self._end(job, update, refused, read_coverage)
        finally:
            self._ending.discard(job.id)

    async def _end(
        self,
        job: Job,
        update: UpdateJob,
        refused: str | None,
        read_coverage: Callable[[], Awaitable[float | None]] | None,
    ) -> Updated:
        size, checksum = await self._traces.seal(job.id)
        if await self._has_wrong_checksum(job, update, checksum):
            await self._traces.reopen(job.id)
            return Updated(code=412, job=await self.touch(job))
        succeeded = update.state == "success" and refused is None
        reason = None if succeeded else reason_of("script_failure" if refused else update.failure_reason)
        outcome = Outcome(
            succeeded=succeeded,
            reason=reason,
            message=refused or update.remuda_message or None,
            exit_code=(update.exit_code or 0) if succeeded else update.exit_code,
            reported=update.state,
            trace_bytes=size,
            trace_checksum=checksum,
            before_script=reason in lost_attempts.POSSIBLE and not await self._may_have_begun_script(job, update, size),
            coverage=await read_coverage() if read_coverage else None,
        )
        ended = await self._changes.finish(job, outcome)
        if ended is None:
            row = await self._jobs.load_job(job.id)
            if row is None or row.epoch != job.epoch or row.reported != update.state:
                raise _not_assigned(row)
            return Updated(code=200, job=row)
        killpoints.reach("cell.finished")
        _log.debug("job ended by its runner", job=job.id, state=ended.state.value, reason=ended.failure_reason)
        return Updated(code=200, job=ended)

    async def _has_wrong_checksum(self, job: Job, update: UpdateJob, checksum: str) -> bool:
        """Return whether the runner must send its log again: the stored one does not have the reported checksum.
        `_TRACE_PATIENCE_SECONDS` after the first report of the end, the stored log is accepted."""
        reported = (update.output.checksum if update.output else None) or update.checksum or ""
        now = self._clock.now()
        if not reported.startswith("crc32:") or reported == checksum:
            return False
        if job.end_put_off_at is not None and now - job.end_put_off_at >= _TRACE_PATIENCE_SECONDS:
            return False
        _log.warning(
            "log checksum differs from the runner's; asking the runner to send the log again",
            job=job.id,
            reported=reported,
            stored=checksum,
        )
        changed = await self._jobs.change_job(job.id, lambda row: leases.refuse_log(row, job.epoch, now))
        if changed is not None:
            self._memory.job_cache.note(changed)
        return True

    async def _drop_refused_log(self, job: Job) -> bool:
        """Remove the stored log if it was refused (wrong checksum): the runner sends it again. True if removed."""
        # Another process may have refused it, so the cached job is not enough.
        row = await self._jobs.load_job(job.id)
        if row is None or row.epoch != job.epoch or not row.is_log_refused or row.state not in ASSIGNED:
            return False
        await self._traces.remove(job.id)
        return True

    async def _may_have_begun_script(self, job: Job, update: UpdateJob, size: int) -> bool:
        """False only if step results or the log (`size` bytes) prove that the script never began: a retry is safe."""
        if update.remuda_may_have_begun:
            return True
        if update.info is not None and update.info.name == REPORTS_STEPS:
            async with aclosing(read_results(self._jobs, job.id)) as stored:
                async for result in stored:
                    if lost_attempts.has_begun_script(msgspec.json.decode(result.body)):
                        return True
            return False
        log = bytearray()
        async with aclosing(self._traces.read(job.id)) as pieces:
            async for piece in pieces:
                log += piece
                if len(log) >= lost_attempts.LOG_BYTES:
                    break
        return lost_attempts.has_begun_script_by_log(bytes(log), size)

    async def _lacks_trace(self, job: Job, update: UpdateJob) -> bool:
        """True if bytes of the reported log are missing and the end must wait, up to `_TRACE_PATIENCE_SECONDS`."""
        reported = update.output.bytesize if update.output else None
        if reported is None or reported <= await self._traces.size(job.id):
            return False
        now = self._clock.now()
        if job.end_put_off_at is None:
            # Stored, because the runner's next call may reach another process.
            await self._jobs.change_job(job.id, lambda row: leases.put_off_end(row, job.epoch, now))
            return True
        return now - job.end_put_off_at < _TRACE_PATIENCE_SECONDS


def _not_assigned(job: Job | None) -> ForbiddenError:
    status = job.status() if job else None
    return ForbiddenError(
        f"this runner does not have the job any more (the job is {status or 'deleted'})", job_status=status
    )


def _restarts_log(start: int, data: bytes, appended: Appended) -> bool:
    return start == 0 and (not appended.taken or appended.size > len(data))
