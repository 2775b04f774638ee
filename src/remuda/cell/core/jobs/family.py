"""A family while a decision is worked out, and what follows for its other jobs and for the pipeline.

Decided here: what a job carries over into a further try, who gets a resource group, that a job which failed for good
may stop the others. Which job follows which is decided in `remuda.model.progress`, which states follow each other in
`remuda.model.job`. `lifecycle` and `triggers` make plans; the store calls those inside its transaction.

Invariant: of the jobs with one resource group, at most one is in an occupying state. What other pipelines have comes
with the family, read in the same transaction.
"""

import math
from collections import defaultdict, deque
from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from remuda.cell.core.jobs.lost_attempts import is_lost
from remuda.cell.errors import InvalidError
from remuda.cell.values import Family, Job, Pipeline
from remuda.cell.values.changes import Changes, Retry
from remuda.model.job import FINAL, OCCUPYING, FailureReason, JobEvent, JobId, JobState, after
from remuda.model.progress import OVER, next_moves, pipeline_state, retries_left

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
        "reported",
        "trace_bytes",
        "trace_checksum",
        "end_put_off_at",
        "is_log_refused",
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
"""What happens to one try alone. A further try begins with none of it; everything else is carried over."""
_BLANK = {field.name: field.default for field in msgspec.structs.fields(Job) if field.name in RUNTIME}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended."""

    succeeded: bool
    reason: FailureReason | None = None
    message: str | None = None
    exit_code: int | None = None
    reported: str | None = None
    """The runner's own word for it, None when the cell ended the job."""
    trace_bytes: int = 0
    trace_checksum: str | None = None
    before_script: bool = False
    """It is certain that the job's script had not begun."""


def further_try(job: Job, tries: int, now: float, *, lost_tries: int = 0) -> Job:
    """A further try of a job; the store gives it an id."""
    return replace(
        job,
        **_BLANK,
        id=NO_JOB,
        state=JobState.CREATED,
        created_at=now,
        updated_at=now,
        tries=tries,
        lost_tries=lost_tries,
        # Where exit codes say what is allowed, it was one of them that made this try an allowed failure.
        allow_failure=job.allow_failure and not job.allow_failure_exit_codes,
    )


def _apply_event(job: Job, event: JobEvent, now: float) -> Job:
    """The job after an event, with the time of it where people want to know it."""
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
    """The job after it succeeded or failed."""
    after_it = replace(
        _apply_event(job, JobEvent.SUCCEED if outcome.succeeded else JobEvent.FAIL, now),
        failure_reason=None if outcome.succeeded else (outcome.reason or FailureReason.UNKNOWN_FAILURE).value,
        failure_message=None if outcome.succeeded else outcome.message,
        exit_code=outcome.exit_code,
        reported=outcome.reported,
        trace_bytes=outcome.trace_bytes,
        trace_checksum=outcome.trace_checksum,
    )
    if after_it.state is JobState.FAILED and after_it.exit_code in after_it.allow_failure_exit_codes:
        after_it = replace(after_it, allow_failure=True)
    return after_it


class FamilyDraft:
    """A family while a decision is worked out; `changes` adds what follows and sums it up."""

    def __init__(self, family: Family, now: float) -> None:
        self.now = now
        self._family = family
        self._newest = {job.name: job for job in family.jobs}
        self._changed: dict[JobId, Job] = {}
        self._retry_of: dict[str, JobId] = {}
        self._occupied: set[str] | None = None

    def find(self, job_id: JobId) -> Job | None:
        """The job as it stands in the plan; None when it is not, or no longer, of this family."""
        return self._changed.get(job_id) or next((job for job in self._family.jobs if job.id == job_id), None)

    def get(self, job_id: JobId) -> Job:
        """The same where a person asked for it; InvalidError when it is not there."""
        job = self.find(job_id)
        if job is None:
            raise InvalidError(f"job {job_id} was retried; use the newest job of its name in the pipeline")
        return job

    def jobs(self) -> Collection[Job]:
        """The newest try of each job."""
        return list(self._newest.values())

    def put(self, job: Job) -> None:
        """The job is now like this."""
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
        """Something happens to the job. One that would be enqueued waits while its resource group is taken."""
        if event is JobEvent.ENQUEUE and job.resource_group and self._is_taken(job.resource_group):
            event = JobEvent.HOLD
        self.put(_apply_event(job, event, self.now))

    def end(self, job: Job, outcome: Outcome) -> None:
        """The job succeeded or failed; by its rules it is tried again, and by the pipeline's it stops the others."""
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
        """Stop the job: gracefully where its runner can, unless by `force`.

        A trigger job stays until its pipeline has stopped. What was handed out to a manager without two-phase commit
        may run, though nothing was heard of it yet; if it was not, its lease ends.
        """
        is_forced = force and not job.is_trigger
        if job.state in FINAL or (job.state is JobState.CANCELING and not is_forced):
            return
        job = replace(job, started_at=job.start_time())
        may_run = job.state is JobState.RUNNING or (job.state is JobState.LEASED and not job.two_phase)
        is_graceful = may_run and not is_forced and (job.graceful_cancel or job.is_trigger)
        self.move(job, JobEvent.CANCEL if is_graceful else JobEvent.ABORT)

    def try_again(self, job: Job, *, tries: int, lost_tries: int = 0, at_once: bool) -> None:
        """A new job takes the place of this one."""
        self._changed[job.id] = replace(job, retried=True)
        self._retry_of[job.name] = job.id
        fresh = further_try(job, tries, self.now, lost_tries=lost_tries)
        self.put(fresh)
        if at_once:
            self.move(fresh, JobEvent.ENQUEUE)

    def revive_behind(self, job: Job) -> None:
        """Revive what was skipped behind a job, directly or through others."""
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
        """What the decision comes to, with all that follows from it."""
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
        status = pipeline_state(self._newest.values())
        started = old.started_at
        if started is None:
            started = min((job.started_at for job in self._newest.values() if job.started_at is not None), default=None)
        if status == old.status and started == old.started_at:
            return old
        finished = old.finished_at if status == old.status else self.now if status in OVER else None
        return replace(old, status=status, started_at=started, finished_at=finished, updated_at=self.now)


def _age(job: Job) -> float:
    """Jobs in the order in which they were created; one that is just being created is the youngest."""
    return job.id if job.id != NO_JOB else math.inf
