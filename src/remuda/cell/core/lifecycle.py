"""What happens to a pipeline's jobs together: beginning, an end and what follows from it, cancel, retry, play.

Each function takes the family as it stands and returns all changes at once: the jobs, further tries, the pipeline's
status and times. The store calls them inside its transaction, so a crash leaves either all of a decision or nothing.
Which job follows which is decided in `remuda.model.progress`, which states follow each other in `remuda.model.job`.

Invariant: a job that is over is never changed back; a further try is a new job, and only a skipped job, which never
ran, is revived.
"""

from collections.abc import Callable, Collection
from itertools import groupby

import msgspec
from msgspec.structs import replace

from remuda.cell.core import leases
from remuda.cell.errors import InvalidError
from remuda.cell.ports import Changes, Retry
from remuda.cell.values import Family, Job, NewJob, Pipeline
from remuda.model.job import FINAL, HELD, FailureReason, JobEvent, JobId, JobState, after
from remuda.model.progress import OVER, Node, When, next_moves, pipeline_state, retries_left

_TRIED = frozenset({JobState.SUCCESS, JobState.FAILED, JobState.CANCELED})
_NO_JOB = JobId(0)


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


def reason_of(text: str | None) -> FailureReason:
    """The runner's word for why a job failed, where it is one that we know."""
    try:
        return FailureReason(text or "")
    except ValueError:
        return FailureReason.UNKNOWN_FAILURE


def new_job(new: NewJob, pipeline: Pipeline, job_id: JobId, now: float) -> Job:
    """The changing part of a job that has just been created."""
    spec = new.spec
    return Job(
        id=job_id,
        pipeline_id=pipeline.id,
        project_id=pipeline.project_id,
        name=spec.name,
        stage=spec.stage,
        stage_index=spec.stage_index,
        ref=pipeline.ref,
        tag=pipeline.tag,
        state=JobState.CREATED,
        created_at=now,
        updated_at=now,
        when=When(spec.when),
        allow_failure=spec.allow_failure,
        protected=pipeline.protected,
        tags=spec.tags,
        by_stage=spec.needs is None,
        waits_for=() if spec.needs is None else new.waits_for,
        artifacts_from=new.artifacts_from,
        timeout_seconds=spec.timeout_seconds,
        retry_max=spec.retry_max,
        retry_when=spec.retry_when,
    )


def begin(family: Family, now: float) -> Changes:
    """Enqueue what can start at once. A pipeline without jobs keeps the status it was given."""
    return _Plan(family, now).changes() if family.jobs else Changes()


def finish(family: Family, job_id: JobId, epoch: int, outcome: Outcome, now: float) -> Changes:
    """End a job that a runner has, try it again by its rules, free or skip those that waited.

    No changes when the job is not in the hands of this epoch's runner (any more).
    """
    plan = _Plan(family, now)
    job = plan.find(job_id)
    if job is None or job.epoch != epoch or job.state not in HELD:
        return Changes()
    job = leases.acknowledge(job, epoch, now) or job
    ended = replace(
        _moved(job, JobEvent.SUCCEED if outcome.succeeded else JobEvent.FAIL, now),
        failure_reason=None if outcome.succeeded else (outcome.reason or FailureReason.UNKNOWN_FAILURE).value,
        failure_message=None if outcome.succeeded else outcome.message,
        exit_code=outcome.exit_code,
        reported=outcome.reported,
        trace_bytes=outcome.trace_bytes,
        trace_checksum=outcome.trace_checksum,
    )
    plan.put(ended)
    if ended.state is JobState.FAILED and retries_left(
        tries=ended.tries,
        retry_max=ended.retry_max,
        retry_when=ended.retry_when,
        reason=ended.failure_reason or "",
    ):
        plan.try_again(ended, tries=ended.tries + 1, at_once=True)
    return plan.changes()


def acknowledge(family: Family, job_id: JobId, epoch: int, now: float) -> Changes:
    """A job has started, and perhaps its pipeline with it."""
    return _with_job(family, job_id, now, lambda job: leases.acknowledge(job, epoch, now))


def release(family: Family, job_id: JobId, epoch: int, now: float) -> Changes:
    """A leased job waits again."""
    return _with_job(family, job_id, now, lambda job: leases.release(job, epoch, now))


def cancel(family: Family, job_id: JobId, now: float) -> Changes:
    """Stop a job. One that is over, or is being stopped, stays as it is."""
    plan = _Plan(family, now)
    plan.cancel(plan.get(job_id))
    return plan.changes()


def cancel_all(family: Family, now: float) -> Changes:
    """Stop all jobs of the pipeline."""
    plan = _Plan(family, now)
    for job in family.jobs:
        plan.cancel(job)
    return plan.changes()


def retry(family: Family, job_id: JobId, now: float) -> Changes:
    """Run a job that is over once more, because a person asks: a new job that starts at once, with all its tries.

    Jobs that were skipped behind it wait again.
    """
    plan = _Plan(family, now)
    job = plan.get(job_id)
    if job.state not in _TRIED:
        raise InvalidError(f"job {job_id} is {job.status()}; only a job that ran or was canceled can be retried")
    plan.try_again(job, tries=1, at_once=True)
    plan.revive_behind(job.name)
    return plan.changes()


def retry_all(family: Family, now: float) -> Changes:
    """Run everything once more that failed or was canceled, in its order; what was skipped waits again."""
    plan = _Plan(family, now)
    for job in family.jobs:
        if job.state in (JobState.FAILED, JobState.CANCELED):
            plan.try_again(job, tries=1, at_once=False)
        elif job.state is JobState.SKIPPED:
            plan.put(_moved(job, JobEvent.REVIVE, now))
    return plan.changes()


def play(family: Family, job_id: JobId, now: float) -> Changes:
    """Start a job that waits for a person."""
    plan = _Plan(family, now)
    job = plan.get(job_id)
    if job.state is not JobState.MANUAL:
        raise InvalidError(f"job {job_id} is {job.status()}; only a manual job can be played")
    plan.put(_moved(job, JobEvent.ENQUEUE, now))
    return plan.changes()


def _with_job(family: Family, job_id: JobId, now: float, change: Callable[[Job], Job | None]) -> Changes:
    plan = _Plan(family, now)
    job = plan.find(job_id)
    changed = change(job) if job else None
    if changed is None:
        return Changes()
    plan.put(changed)
    return plan.changes()


def _moved(job: Job, event: JobEvent, now: float) -> Job:
    """The job after an event, with the time of it where people want to know it."""
    state = after(job.state, event)
    changed = replace(job, state=state, updated_at=now)
    if state is JobState.PENDING:
        return replace(changed, pending_at=now)
    if state in FINAL:
        return replace(changed, finished_at=now, lease_until=None)
    return replace(changed, finished_at=None)


def _fresh(job: Job, tries: int, now: float) -> Job:
    """A further try of a job; the store gives it an id."""
    return Job(
        id=_NO_JOB,
        pipeline_id=job.pipeline_id,
        project_id=job.project_id,
        name=job.name,
        stage=job.stage,
        stage_index=job.stage_index,
        ref=job.ref,
        tag=job.tag,
        state=JobState.CREATED,
        created_at=now,
        updated_at=now,
        when=job.when,
        allow_failure=job.allow_failure,
        protected=job.protected,
        tags=job.tags,
        by_stage=job.by_stage,
        waits_for=job.waits_for,
        artifacts_from=job.artifacts_from,
        timeout_seconds=job.timeout_seconds,
        retry_max=job.retry_max,
        retry_when=job.retry_when,
        tries=tries,
    )


def _nodes(jobs: Collection[Job]) -> list[Node]:
    """The jobs as their pipeline sees them. Those of a stage share the list of all that came before."""
    earlier: dict[int, tuple[str, ...]] = {}
    names: tuple[str, ...] = ()
    for index, stage in groupby(sorted(jobs, key=_stage_index), key=_stage_index):
        earlier[index] = names
        names += tuple(job.name for job in stage)
    return [
        Node(
            name=job.name,
            state=job.state,
            when=job.when,
            allow_failure=job.allow_failure,
            waits_for=earlier[job.stage_index] if job.by_stage else job.waits_for,
        )
        for job in jobs
    ]


def _stage_index(job: Job) -> int:
    return job.stage_index


class _Plan:
    """A family while a decision is worked out; `changes` adds what follows and sums it up."""

    def __init__(self, family: Family, now: float) -> None:
        self._family = family
        self._now = now
        self._newest = {job.name: job for job in family.jobs}
        self._old: dict[JobId, Job] = {job.id: job for job in family.jobs}
        self._changed: dict[JobId, Job] = {}
        self._retry_of: dict[str, JobId] = {}

    def find(self, job_id: JobId) -> Job | None:
        return self._changed.get(job_id) or self._old.get(job_id)

    def get(self, job_id: JobId) -> Job:
        job = self.find(job_id)
        if job is None:
            raise InvalidError(f"job {job_id} was retried; use the newest job of its name in the pipeline")
        return job

    def put(self, job: Job) -> None:
        self._newest[job.name] = job
        if job.id != _NO_JOB:
            self._changed[job.id] = job

    def cancel(self, job: Job) -> None:
        if job.state in FINAL or job.state is JobState.CANCELING:
            return
        graceful = job.state is JobState.RUNNING and job.graceful_cancel
        self.put(_moved(job, JobEvent.CANCEL if graceful else JobEvent.ABORT, self._now))

    def try_again(self, job: Job, *, tries: int, at_once: bool) -> None:
        self._changed[job.id] = replace(job, retried=True)
        self._retry_of[job.name] = job.id
        fresh = _fresh(job, tries, self._now)
        self.put(_moved(fresh, JobEvent.ENQUEUE, self._now) if at_once else fresh)

    def revive_behind(self, name: str) -> None:
        """Revive what was skipped behind a job, directly or through others."""
        behind = {name}
        grown = True
        while grown:
            grown = False
            for node in _nodes(self._newest.values()):
                if node.name not in behind and not behind.isdisjoint(node.waits_for):
                    behind.add(node.name)
                    grown = True
                    if node.state is JobState.SKIPPED:
                        self.put(_moved(self._newest[node.name], JobEvent.REVIVE, self._now))

    def changes(self) -> Changes:
        for move in next_moves(_nodes(self._newest.values())):
            self.put(_moved(self._newest[move.name], move.event, self._now))
        pipeline = self._pipeline()
        return Changes(
            jobs=tuple(self._changed.values()),
            retries=tuple(Retry(of=old, job=self._newest[name]) for name, old in self._retry_of.items()),
            pipeline=None if pipeline == self._family.pipeline else pipeline,
        )

    def _pipeline(self) -> Pipeline:
        old = self._family.pipeline
        status = pipeline_state(_nodes(self._newest.values()))
        started = old.started_at
        if started is None and any(job.started_at is not None for job in self._newest.values()):
            started = self._now
        if status == old.status and started == old.started_at:
            return old
        finished = old.finished_at if status == old.status else self._now if status in OVER else None
        return replace(old, status=status, started_at=started, finished_at=finished, updated_at=self._now)
