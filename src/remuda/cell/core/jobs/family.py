"""Applies changes to a family (a pipeline with its jobs) and computes their consequences: automatic retries, which
waiting job may use a resource group next, which jobs a failure cancels, and the status of the pipeline. Invariant: of
the jobs with the same resource group at most one is pending, leased, running or being canceled (`OCCUPYING`). The
groups that other pipelines use are read with the family, in the same transaction."""

import math
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from remuda.cell.core.jobs.lost_attempts import is_lost
from remuda.cell.errors import InvalidError
from remuda.cell.values import Family, Job, Pipeline
from remuda.cell.values.changes import Changes, Retry
from remuda.cell.values.jobs import ExternalStatus
from remuda.model.job import FINAL, OCCUPYING, FailureReason, JobEvent, JobId, JobState, after
from remuda.model.progress import OVER, Counted, next_moves, pipeline_state, retries_left

NO_JOB = JobId(0)
_WAITING = JobState.WAITING_FOR_RESOURCE

RUNTIME = frozenset(
    {
        "retried",
        "lost",
        "epoch",
        "runner_id",
        "system_id",
        "request_id",
        "lease_until",
        "graceful_cancel",
        "two_phase",
        "pending_at",
        "leased_at",
        "started_at",
        "finished_at",
        "failure_reason",
        "failure_message",
        "exit_code",
        "warnings",
        "reported",
        "trace_bytes",
        "trace_checksum",
        "end_put_off_at",
        "is_log_refused",
        "is_traced",
        "erased",
        "erased_at",
        "artifacts_gone",
        "downstream_id",
        "scheduled_at",
        "coverage",
        "gets",
        "token_hash",
    }
)
"""Fields about one attempt, which a retry does not take over from its job."""
_BLANK = {field.name: field.default for field in msgspec.structs.fields(Job) if field.name in RUNTIME}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The success or failure of a job, as reported by its runner or decided by the cell."""

    succeeded: bool
    reason: FailureReason | None = None
    message: str | None = None
    exit_code: int | None = None
    reported: str | None = None
    """The state that the runner sent; None if the cell ended the job."""
    trace_bytes: int = 0
    trace_checksum: str | None = None
    before_script: bool = False
    """It is certain that the job's script had not begun."""
    coverage: float | None = None


def further_try(job: Job, tries: int, now: float, *, lost_tries: int = 0) -> Job:
    """Return a new job that retries `job`; the store assigns its id. `tries` is the number of the new attempt, without
    `lost_tries`: the attempts that an infrastructure failure ended before their script began."""
    return replace(
        job,
        **_BLANK,
        id=NO_JOB,
        state=JobState.CREATED,
        created_at=now,
        updated_at=now,
        tries=tries,
        lost_tries=lost_tries,
        # If only some exit codes are allowed failures, the exit code of the old attempt had set `allow_failure`.
        allow_failure=job.allow_failure and not job.allow_failure_exit_codes,
    )


def _apply_event(job: Job, event: JobEvent, now: float) -> Job:
    state = after(job.state, event)
    return replace(
        job,
        state=state,
        updated_at=now,
        pending_at=now if state is JobState.PENDING else job.pending_at,
        scheduled_at=now + (job.start_in_seconds or 0) if state is JobState.SCHEDULED else None,
        finished_at=now if state in FINAL else None,
        lease_until=None if state in FINAL else job.lease_until,
    )


def apply_outcome(job: Job, outcome: Outcome, now: float) -> Job:
    """Return the job as succeeded or failed, with failure reason, exit code and log size of the outcome."""
    ended = replace(
        _apply_event(job, JobEvent.SUCCEED if outcome.succeeded else JobEvent.FAIL, now),
        failure_reason=None if outcome.succeeded else (outcome.reason or FailureReason.UNKNOWN_FAILURE).value,
        failure_message=None if outcome.succeeded else outcome.message,
        exit_code=outcome.exit_code,
        reported=outcome.reported,
        trace_bytes=outcome.trace_bytes,
        trace_checksum=outcome.trace_checksum,
        coverage=outcome.coverage,
    )
    if ended.state is JobState.FAILED and ended.exit_code in ended.allow_failure_exit_codes:
        ended = replace(ended, allow_failure=True)
    return ended


class FamilyDraft:
    """A working copy of a pipeline with its jobs. Methods change it in memory; `changes` returns what to store."""

    def __init__(self, family: Family, now: float) -> None:
        self.now = now
        self._family = family
        self._newest = {job.name: job for job in family.jobs}
        self._changed: dict[JobId, Job] = {}
        self._retry_of: dict[str, JobId] = {}
        self._occupied: set[str] | None = None
        self._external = family.pipeline.external

    def find(self, job_id: JobId) -> Job | None:
        """Return the job with its changes so far; None if it was retried or belongs to another pipeline."""
        return self._changed.get(job_id) or next((job for job in self._family.jobs if job.id == job_id), None)

    def get(self, job_id: JobId) -> Job:
        """Return the job with its changes so far. Raises InvalidError if it was retried or is of another pipeline."""
        job = self.find(job_id)
        if job is None:
            raise InvalidError(f"job {job_id} was retried; use the newest job of its name in the pipeline")
        return job

    def jobs(self) -> Collection[Job]:
        """Return the newest attempt of each job of the pipeline, with the changes made in this working copy so far."""
        return list(self._newest.values())

    def put(self, job: Job) -> None:
        """Replace a job in the working copy by its changed version, and update which resource groups are in use."""
        if self._occupied is not None and job.resource_group:
            old = self._newest[job.name]
            if old.state in OCCUPYING:
                self._occupied.discard(old.resource_group)
            if job.state in OCCUPYING:
                self._occupied.add(job.resource_group)
        self._newest[job.name] = job
        if job.id != NO_JOB:
            self._changed[job.id] = job

    def move(self, job: Job, event: JobEvent) -> None:
        """Change the state of a job by an event. With ENQUEUE, a job whose resource group is in use waits for it."""
        if event is JobEvent.ENQUEUE and job.resource_group and self._is_taken(job.resource_group):
            event = JobEvent.HOLD
        self.put(_apply_event(job, event, self.now))

    def end(self, job: Job, outcome: Outcome) -> None:
        """End a job. If it failed, it is retried if its retry rules allow it or it was lost before its script began;
        otherwise all other jobs are canceled if the pipeline says so (`cancel_on_job_failure`)."""
        over = apply_outcome(job, outcome, self.now)
        self.put(over)
        if over.state is not JobState.FAILED:
            return
        if is_lost(over, outcome.reason, before_script=outcome.before_script):
            lost = replace(over, lost=True)
            self.try_again(lost, tries=over.tries, lost_tries=over.lost_tries + 1, at_once=True)
        elif not over.is_trigger and retries_left(
            tries=over.tries,
            retry_max=over.retry_max,
            retry_when=over.retry_when,
            reason=over.failure_reason or "",
            retry_exit_codes=over.retry_exit_codes,
            exit_code=over.exit_code,
        ):
            self.try_again(over, tries=over.tries + 1, lost_tries=over.lost_tries, at_once=True)
        elif self._family.pipeline.cancel_on_job_failure == "all" and not over.allow_failure:
            for other in self.jobs():
                self.cancel(other)

    def cancel(self, job: Job, *, force: bool = False) -> None:
        """Cancel a job. A running job is `canceling` until its runner has stopped it if the runner supports that and
        `force` is not set; a running trigger job, even with `force`, until its downstream pipeline has stopped. All
        other jobs are `canceled` at once. A leased job (given to a runner) counts as running, unless its manager has
        yet to confirm the start (`two_phase`). An ended job is not changed, and a `canceling` one only with `force`."""
        is_forced = force and not job.is_trigger
        if job.state in FINAL or (job.state is JobState.CANCELING and not is_forced):
            return
        job = replace(job, started_at=job.start_time())
        may_run = job.state is JobState.RUNNING or (job.state is JobState.LEASED and not job.two_phase)
        is_graceful = may_run and not is_forced and (job.graceful_cancel or job.is_trigger)
        self.move(job, JobEvent.CANCEL if is_graceful else JobEvent.ABORT)

    def report_external(self, statuses: tuple[ExternalStatus, ...]) -> None:
        """Replace the external statuses of the pipeline, which count in its status like jobs."""
        self._external = statuses

    def cancel_external(self) -> None:
        """Cancel the external statuses that have not ended. The other systems are not told."""
        self._external = tuple(
            status
            if status.state in FINAL
            else replace(status, state=JobState.CANCELED, updated_at=self.now, finished_at=self.now)
            for status in self._external
        )

    def try_again(
        self, job: Job, *, tries: int, lost_tries: int = 0, at_once: bool, inputs: Mapping[str, Any] | None = None
    ) -> None:
        """Replace a job by a new attempt (`further_try`), which waits for its stage or `needs` unless `at_once`.
        `inputs` replace values of the old job."""
        self._changed[job.id] = replace(job, retried=True)
        self._retry_of[job.name] = job.id
        fresh = further_try(job, tries, self.now, lost_tries=lost_tries)
        if inputs:
            fresh = replace(fresh, inputs={**job.inputs, **inputs})
        self.put(fresh)
        if at_once:
            self.move(fresh, JobEvent.ENQUEUE)

    def revive_behind(self, job: Job) -> None:
        """Set skipped jobs that depend on this job, also through others, back to `created`, so that they can run."""
        jobs = self.jobs()
        needed_by: defaultdict[str, list[Job]] = defaultdict(list)
        for other in jobs:
            for need in () if other.by_stage else other.waits_for:
                needed_by[need].append(other)
        waiting = deque(other for other in jobs if other.by_stage and other.stage_index > job.stage_index)
        waiting += needed_by[job.name]
        behind = {job.name}
        while waiting:
            other = waiting.popleft()
            if other.name in behind:
                continue
            behind.add(other.name)
            waiting += needed_by[other.name]
            if other.state is JobState.SKIPPED:
                self.move(other, JobEvent.REVIVE)

    def changes(self) -> Changes:
        """Enqueue or skip jobs that need not wait any more, and return all changed jobs, retries and the pipeline."""
        waiting = [job for job in self._newest.values() if job.state is _WAITING]
        for job in sorted(waiting, key=_age):
            if not self._is_taken(job.resource_group):
                self.move(job, JobEvent.ENQUEUE)
        for move in next_moves(self._newest.values()):
            self.move(self._newest[move.name], move.event)
        pipeline = self._pipeline()
        return Changes(
            jobs=tuple(self._changed.values()),
            retries=tuple(Retry(of=old, job=self._newest[name]) for name, old in self._retry_of.items()),
            pipeline=None if pipeline is self._family.pipeline else pipeline,
        )

    def _is_taken(self, group: str) -> bool:
        if self._occupied is None:
            self._occupied = {job.resource_group for job in self._newest.values() if job.state in OCCUPYING}
        return group in self._occupied or group in self._family.taken

    def _pipeline(self) -> Pipeline:
        old = self._family.pipeline
        external = [status for status in self._external if not status.retried]
        counted: Collection[Counted] = (*self._newest.values(), *external) if external else self._newest.values()
        # A pipeline without jobs failed because of its file, or was skipped. That does not change.
        status = pipeline_state(counted) if counted else old.status
        started = old.started_at
        if started is None:
            starts = [job.started_at for job in self._newest.values()] + [row.started_at for row in external]
            started = min((start for start in starts if start is not None), default=None)
        if status == old.status and started == old.started_at and self._external == old.external:
            return old
        finished = old.finished_at if status == old.status else self.now if status in OVER else None
        return replace(
            old,
            status=status,
            started_at=started,
            finished_at=finished,
            updated_at=self.now,
            external=self._external,
        )


def _age(job: Job) -> float:
    return job.id if job.id != NO_JOB else math.inf
