"""What a runner says about the job that it holds: it has started, it is alive, it logs, it has results, it has ended.

Decided here: which token opens which job, and that the end of a job is put off while its log lacks bytes. What an end
comes to is decided in `core.lifecycle`. The HTTP edge calls this for every request with a job token.

Invariant: the trace is durable before the end of its job is stored.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from remuda.cell.core.jobs import leases, lifecycle, lost_attempts
from remuda.cell.core.jobs.family import Outcome
from remuda.cell.core.jobs.lifecycle import reason_of
from remuda.cell.dispatch.job_changes import Motion, has_begun
from remuda.cell.dispatch.step_results import results_of
from remuda.cell.errors import ForbiddenError, StoreError
from remuda.cell.store.ports import Appended
from remuda.cell.values import Family, Job, StepResult
from remuda.cell.values.changes import Changes
from remuda.lib import killpoints
from remuda.model.job import FINAL, HELD, FailureReason, JobId, JobState
from remuda.wire.job_token import ExpiredError, JobClaims
from remuda.wire.routable_token import TokenError
from remuda.wire.runner_api import MANAGER_NAME, UpdateJob

_SHORT_TRACE_PATIENCE_SECONDS = 300
"""How long a final state is put off because the runner says that its trace has more bytes than have arrived."""


REPORTS_STEPS = MANAGER_NAME
"""What a manager calls itself that sends the results of all steps before it sends the end of the job."""


class Updated(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a job's update: a status code, and the job for the Job-Status header."""

    code: int
    job: Job


class Holders(Motion):
    """The part of dispatch that listens to runners."""

    async def holder(self, token: str, job_id: int | None = None, *, ended: bool = False, scope: str = "job") -> Job:
        """The job that this token opens; ForbiddenError when it opens none, or not `job_id`, or not for this purpose.

        A token opens a job while a runner has it. With `ended` also afterwards, for what a runner may send twice; then
        it may be the job as it was a few seconds ago (`known_jobs`).
        """
        try:
            job = await (self._keys.opens(token, scope, self._known.get) if ended else self._keys.opens(token, scope))
        except ExpiredError as error:
            if ended and error.claims.job_id == job_id:
                raise await self._outlived(error.claims) from None
            raise ForbiddenError(f"the job token is not accepted: {error}") from None
        except TokenError as error:
            raise ForbiddenError(f"the job token is not accepted: {error}") from None
        if job_id is not None and job.id != job_id:
            raise ForbiddenError("the job token belongs to another job")
        if job.state not in HELD and not (ended and job.state in FINAL):
            raise ForbiddenError(f"the job is {job.status()}", job_status=job.status())
        if job is not self._known.get(job.id):
            self._known.note(job)
        return job

    def holder_known(self, token: str, job_id: int) -> Job | None:
        """The same where nothing has to be asked for; None where something has, and wherever the answer may be no."""
        job = self._keys.opens_known(token, "job", self._known.get)
        return job if job is not None and job.id == job_id and job.state in HELD else None

    async def _outlived(self, claims: JobClaims) -> ForbiddenError:
        """A job outlived its token, so nobody can say any more how it ended: it has failed.

        A token that was over before the job was handed out was never its own.
        """
        job = await self._store.job(JobId(claims.job_id))
        if job is None or job.epoch != claims.epoch or claims.expires_at <= (job.leased_at or 0):
            return ForbiddenError("the job token is not accepted: it has expired")
        if job.state in HELD:
            message = "it ran on after its timeout, until its token had expired"
            await self._end_unasked(job, FailureReason.JOB_TOKEN_EXPIRED, message)
        row = await self._store.job(job.id) or job
        return ForbiddenError("the job token has expired", job_status=row.status())

    async def touch(self, job: Job) -> Job:
        """The runner spoke: a leased job has started now, a started one is alive."""
        now = self._clock.now()
        if not leases.needs_touch(job, now, self._settings):
            return job
        if job.state is JobState.LEASED:
            touched = await self._start(job, now)
        else:
            touched = await self._acknowledge(job, now)
        if touched is None:
            raise self._lost(await self._store.job(job.id))
        self._known.note(touched)
        if job.state is JobState.LEASED:
            killpoints.reach("cell.acknowledged")
            self.changed_jobs.note(job.id)
        return touched

    async def _acknowledge(self, job: Job, now: float) -> Job | None:
        """Store that the runner spoke, and nothing about the pipeline."""
        return await self._store.change_job(job.id, lambda row: leases.acknowledge(row, job.epoch, now), known=job)

    async def _start(self, job: Job, now: float) -> Job | None:
        """The job after its start; None when it is not this epoch's any more.

        Its pipeline may begin to run with it. Otherwise the start changes nothing about the pipeline, and the other
        jobs need not be read. The jobs of a new pipeline start nearly at the same time: those that come while it is
        looked at for the first one wait for what that comes to.
        """
        while (other := self._starting.get(job.pipeline_id)) and not self._known.is_in_running(job):
            await other.wait()
        if self._known.is_in_running(job):
            return await self._acknowledge(job, now)
        done = self._starting[job.pipeline_id] = asyncio.Event()
        try:
            moment = self._known.moment()
            pipeline = await self._store.pipeline(job.pipeline_id)
            if pipeline is None or not has_begun(pipeline):
                return await self._start_first(job, now)
            self._known.note_running(pipeline.id, since=moment)
        finally:
            del self._starting[job.pipeline_id]
            done.set()
        return await self._acknowledge(job, now)

    async def _start_first(self, job: Job, now: float) -> Job | None:
        moment = self._known.moment()
        runs = False

        def decide(family: Family) -> Changes:
            nonlocal runs
            changes = lifecycle.acknowledge(family, job.id, job.epoch, now)
            runs = has_begun(changes.pipeline or family.pipeline)
            return changes

        applied = await self.change(job.pipeline_id, decide)
        if runs:
            self._known.note_running(job.pipeline_id, since=moment)
        return next((changed for changed in applied.jobs if changed.id == job.id), None)

    async def append_trace(self, job: Job, start: int, data: bytes) -> Appended:
        """Add to the log. Of a job that is over only bytes are taken that are there already."""
        if job.state in FINAL:
            appended = await self._traces.compare(job.id, start, data)
            if not appended.taken:
                raise self._lost(job)
            return appended
        job = await self.touch(job)
        is_over = start + len(data) > self._settings.trace_limit_bytes
        if is_over and start <= await self._traces.size(job.id):
            await self._end_unasked(
                job,
                FailureReason.TRACE_SIZE_EXCEEDED,
                f"the log is limited to {self._settings.trace_limit_bytes} bytes",
            )
            raise ForbiddenError("the log is too large", job_status=JobState.FAILED.value)
        appended = await self._traces.append(job.id, start, data)
        if _restarts_log(start, data, appended) and await self._drop_refused_log(job):
            appended = await self._traces.append(job.id, start, data)
        if not appended.taken and start <= appended.size:
            row = await self._store.job(job.id)
            if row is None or row.epoch != job.epoch or row.state not in HELD:
                raise self._lost(row)
            if job.id not in self._ending:
                # Sealed for an end that could then not be stored.
                await self._traces.reopen(job.id)
                appended = await self._traces.append(job.id, start, data)
        if appended.taken:
            killpoints.reach("cell.trace_appended")
        return appended

    def append_known(self, job: Job, start: int, data: bytes) -> Appended | None:
        """The same for the next piece of a log about which nothing else is to be done; None for any other."""
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
        """Store step results; the next sequence number wanted."""
        if job.state in FINAL:
            raise self._lost(job)
        await self.touch(job)
        limit = self._settings.results_total_limit_bytes
        following = await self._store.add_results(job.id, results, limit_bytes=limit)
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
        if await self._is_other_log(job, update, checksum):
            await self._traces.reopen(job.id)
            return Updated(code=412, job=await self.touch(job))
        succeeded = update.state == "success" and refused is None
        reason = None if succeeded else reason_of("script_failure" if refused else update.failure_reason)
        outcome = Outcome(
            succeeded=succeeded,
            reason=reason,
            message=refused,
            exit_code=(update.exit_code or 0) if succeeded else update.exit_code,
            reported=update.state,
            trace_bytes=size,
            trace_checksum=checksum,
            before_script=reason in lost_attempts.POSSIBLE and not await self._has_begun(job, update, size),
        )
        ended = await self._finish(job, outcome)
        if ended is None:
            row = await self._store.job(job.id)
            if row is None or row.epoch != job.epoch or row.reported != update.state:
                raise self._lost(row)
            return Updated(code=200, job=row)
        killpoints.reach("cell.finished")
        self._log.debug("job ended", job=job.id, state=ended.state.value, reason=ended.failure_reason)
        return Updated(code=200, job=ended)

    async def _is_other_log(self, job: Job, update: UpdateJob, checksum: str) -> bool:
        """Whether the runner logged other bytes than are stored. It is asked to send them again for some minutes; then
        the end counts, and what is stored stays."""
        said = (update.output.checksum if update.output else None) or update.checksum or ""
        now = self._clock.now()
        if not said.startswith("crc32:") or said == checksum:
            return False
        put_off_at = job.end_put_off_at
        if put_off_at is not None and now - put_off_at >= _SHORT_TRACE_PATIENCE_SECONDS:
            return False
        self._log.warning("log checksum differs from the runner's; asked for the log again", job=job.id, said=said)
        changed = await self._store.change_job(job.id, lambda row: leases.refuse_log(row, job.epoch, now))
        if changed is not None:
            self._known.note(changed)
        return True

    async def _drop_refused_log(self, job: Job) -> bool:
        """Forget a log that was refused, because its runner sends it again; False: it was not refused."""
        # Another process may have refused it, so what is known of the job here is not enough.
        row = await self._store.job(job.id)
        if row is None or row.epoch != job.epoch or not row.is_log_refused or row.state not in HELD:
            return False
        await self._traces.remove(job.id)
        return True

    async def _has_begun(self, job: Job, update: UpdateJob, size: int) -> bool:
        """Whether the job's own script has begun, or may have."""
        if update.remuda_may_have_begun:
            return True
        if update.info is not None and update.info.name == REPORTS_STEPS:
            async with aclosing(results_of(self._store, job.id)) as stored:
                async for result in stored:
                    if lost_attempts.has_begun(msgspec.json.decode(result.body)):
                        return True
            return False
        log = bytearray()
        async for piece in self._traces.read(job.id):
            log += piece
            if len(log) >= lost_attempts.LOG_BYTES:
                break
        return lost_attempts.began_by_log(bytes(log), size)

    async def _lacks_trace(self, job: Job, update: UpdateJob) -> bool:
        """Whether the runner says it logged more than has arrived; believed for some minutes, then the end counts."""
        said = update.output.bytesize if update.output else None
        if said is None or said <= await self._traces.size(job.id):
            return False
        now = self._clock.now()
        if job.end_put_off_at is None:
            # Stored, because the runner's next calls may be another process's.
            await self._store.change_job(job.id, lambda row: leases.put_off_end(row, job.epoch, now))
            return True
        return now - job.end_put_off_at < _SHORT_TRACE_PATIENCE_SECONDS

    @staticmethod
    def _lost(job: Job | None) -> ForbiddenError:
        status = job.status() if job else None
        return ForbiddenError(f"the job is not this runner's any more (it is {status or 'gone'})", job_status=status)


def _restarts_log(start: int, data: bytes, appended: Appended) -> bool:
    """True if a piece at offset 0 is not simply the next one: the runner sends its log again."""
    return start == 0 and (not appended.taken or appended.size > len(data))
