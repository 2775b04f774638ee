"""State changes of the jobs of a pipeline: begin, finish, cancel, retry, start of manual jobs (play) and of delayed
jobs. Functions that take the stored family (the pipeline with its jobs) return all changes at once. The store calls
them inside its transaction, so after a crash either all changes are stored or none. Invariant: a job that ended is
never changed back; a retry is a new job. Exceptions are a skipped job, which never ran and can wait again, and a
trigger job, which has no runner and runs again if its downstream pipeline does."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from remuda.cell.core.jobs import leases
from remuda.cell.core.jobs.family import FamilyDraft, Outcome, apply_outcome
from remuda.cell.errors import InvalidError
from remuda.cell.values import MAX_PRIORITY, Family, Job, NewJob, Pipeline
from remuda.cell.values.changes import Changes
from remuda.model.job import ASSIGNED, FINAL, FailureReason, JobEvent, JobId, JobState
from remuda.model.progress import When

_TRIED = frozenset({JobState.SUCCESS, JobState.FAILED, JobState.CANCELED})
_PLAYABLE = frozenset({JobState.MANUAL, JobState.SCHEDULED})


def reason_of(text: str | None) -> FailureReason:
    """Convert the failure reason that a runner sent; an unknown or missing text gives UNKNOWN_FAILURE."""
    try:
        return FailureReason(text or "")
    except ValueError:
        return FailureReason.UNKNOWN_FAILURE


def new_job(new: NewJob, pipeline: Pipeline, job_id: JobId, now: float) -> Job:
    """Create a job of a new pipeline from its spec (definition), which never changes and is stored separately."""
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
        retry_exit_codes=spec.retry_exit_codes,
        # If every failure is allowed, exit codes have no effect.
        allow_failure_exit_codes=() if spec.allow_failure else spec.allow_failure_exit_codes,
        is_trigger=spec.trigger is not None,
        start_in_seconds=spec.start_in_seconds,
        interruptible=spec.interruptible,
        resource_group=new.resource_group,
        environment=new.environment,
        priority=new.priority,
        environment_action=spec.environment.action if spec.environment and new.environment else "",
        environment_plan=new.environment_plan,
        organization_id=pipeline.organization_id,
        group_ids=pipeline.group_ids,
        closed_to=pipeline.closed_to,
        ends_alone=new.ends_alone,
    )


def begin(family: Family, now: float) -> Changes:
    """Enqueue the jobs of a new pipeline that can start at once."""
    return FamilyDraft(family, now).changes()


def resume(family: Family, now: float) -> Changes:
    """Enqueue those jobs of a pipeline that waited for a resource group, if the group is free now."""
    return FamilyDraft(family, now).changes()


def finish(family: Family, job_id: JobId, epoch: int, outcome: Outcome, now: float) -> Changes:
    """End a job that a runner has, retry it by its rules, and enqueue or skip the jobs that waited for it. Changes
    nothing if no runner has the job, or it was given to a runner again: its `epoch` (number of hand-outs) differs."""
    draft = FamilyDraft(family, now)
    job = draft.find(job_id)
    if job is None or job.epoch != epoch or job.state not in ASSIGNED:
        return Changes()
    # An end that the cell decided is no sign of life of the runner.
    started = leases.acknowledge(job, epoch, now) if outcome.reported is not None else None
    draft.end(started or job, outcome)
    return draft.changes()


def finish_alone(job: Job, epoch: int, outcome: Outcome, now: float) -> Job | None:
    """Return the job as succeeded if that affects no other job; None if `finish` must be used. Store the result only
    while a job of the pipeline with a higher id is `UNDER_WAY`: its end then sets the status of the pipeline."""
    if job.epoch != epoch or job.state is not JobState.RUNNING or not (job.ends_alone and outcome.succeeded):
        return None
    return apply_outcome(job, outcome, now)


def drop(family: Family, job: Job, outcome: Outcome, now: float) -> Changes:
    """Fail a pending or delayed job with the given outcome. Nothing is changed if the stored job differs from `job`."""
    draft = FamilyDraft(family, now)
    if draft.find(job.id) != job or job.state not in (JobState.PENDING, JobState.SCHEDULED):
        return Changes()
    draft.end(job, outcome)
    return draft.changes()


def acknowledge(family: Family, job_id: JobId, epoch: int, now: float) -> Changes:
    """Start a leased job that its runner acknowledged, and its pipeline if this is its first job. Nothing is changed if
    it has ended, is back in the queue, or was given to a runner again: its `epoch` (number of hand-outs) differs."""
    return _with_job(family, job_id, now, lambda job: leases.acknowledge(job, epoch, now))


def release(family: Family, job_id: JobId, epoch: int, now: float) -> Changes:
    """Put a leased job back into the queue; one that was canceled meanwhile ends as canceled instead. Changes nothing
    if it was acknowledged, or given to a runner again: its `epoch` (number of hand-outs) differs."""
    draft = FamilyDraft(family, now)
    job = draft.find(job_id)
    if job is not None and job.epoch == epoch and job.state is JobState.CANCELING and leases.is_unheard(job):
        draft.move(job, JobEvent.ABORT)
        return draft.changes()
    return _with_job(family, job_id, now, lambda job: leases.release(job, epoch, now))


def start_due(family: Family, now: float) -> Changes:
    draft = FamilyDraft(family, now)
    for job in family.jobs:
        if job.state is JobState.SCHEDULED and (job.scheduled_at or 0) <= now:
            draft.move(job, JobEvent.ENQUEUE)
    return draft.changes()


def cancel(family: Family, job_id: JobId, now: float, *, force: bool = False) -> Changes:
    """Cancel a job: with `force` at once, otherwise gracefully (`canceling`) if its runner can. An ended job is not
    changed, a `canceling` one only with `force`. Raises InvalidError if the job was retried."""
    draft = FamilyDraft(family, now)
    draft.cancel(draft.get(job_id), force=force)
    return draft.changes()


def cancel_all(family: Family, now: float) -> Changes:
    draft = FamilyDraft(family, now)
    for job in family.jobs:
        draft.cancel(job)
    if family.pipeline.external:
        draft.cancel_external()
    return draft.changes()


def retry(family: Family, job_id: JobId, now: float, inputs: Mapping[str, Any] | None = None) -> Changes:
    """Retry an ended job at once; it gets all its automatic retries again. Jobs skipped because of it wait again.
    `inputs`: values that replace those of the attempt before.
    Raises InvalidError if the job has not ended, was skipped, or was retried before."""
    draft = FamilyDraft(family, now)
    job = draft.get(job_id)
    if job.state not in _TRIED:
        raise InvalidError(f"job {job_id} is {job.status()}; only a job that ran or was canceled can be retried")
    draft.try_again(job, tries=1, at_once=True, inputs=inputs)
    draft.revive_behind(job)
    return draft.changes()


def retry_all(family: Family, now: float) -> Changes:
    """Retry failed and canceled jobs, each when the jobs it depends on have ended. Skipped jobs wait again."""
    draft = FamilyDraft(family, now)
    for job in family.jobs:
        if job.state in (JobState.FAILED, JobState.CANCELED):
            draft.try_again(job, tries=1, at_once=False)
        elif job.state is JobState.SKIPPED:
            draft.move(job, JobEvent.REVIVE)
    return draft.changes()


def play(
    family: Family,
    job_id: JobId,
    now: float,
    variables: Mapping[str, str],
    inputs: Mapping[str, Any] | None = None,
) -> Changes:
    """Start a manual or delayed job now, by order of a user: enqueue it, with additional variables and values of its
    inputs. Jobs that were skipped because of it wait for it again. Raises InvalidError if the job is neither manual nor
    delayed."""
    draft = FamilyDraft(family, now)
    job = draft.get(job_id)
    if job.state not in _PLAYABLE:
        raise InvalidError(f"job {job_id} is {job.status()}; only a manual or a delayed job can be played")
    draft.move(replace(job, play_variables=dict(variables), inputs=dict(inputs or {})), JobEvent.ENQUEUE)
    draft.revive_behind(job)
    return draft.changes()


def prioritize(job: Job, priority: int, now: float) -> Job | None:
    """Return the job with another priority; None if it has that priority already. Raises InvalidError if the priority
    is out of range, or if a runner has the job, the job has ended, or it is a trigger job, which no runner gets."""
    if abs(priority) > MAX_PRIORITY:
        raise InvalidError(f"priority {priority} is out of range; give a number from {-MAX_PRIORITY} to {MAX_PRIORITY}")
    if job.is_trigger:
        raise InvalidError(f"job {job.id} is a trigger job; no runner ever gets it, so it has no priority")
    if job.state in ASSIGNED or job.state in FINAL:
        raise InvalidError(f"job {job.id} is {job.status()}; only a job that waits can have another priority")
    return None if job.priority == priority else replace(job, priority=priority, updated_at=now)


def unschedule(family: Family, job_id: JobId, now: float) -> Changes:
    """Turn a delayed job into a manual one, which a user must start. Raises InvalidError if it is not delayed."""
    draft = FamilyDraft(family, now)
    job = draft.get(job_id)
    if job.state is not JobState.SCHEDULED:
        raise InvalidError(f"job {job_id} is {job.status()}; only a delayed job that waits can be unscheduled")
    draft.move(job, JobEvent.ASK)
    return draft.changes()


def _with_job(family: Family, job_id: JobId, now: float, change: Callable[[Job], Job | None]) -> Changes:
    draft = FamilyDraft(family, now)
    job = draft.find(job_id)
    changed = change(job) if job else None
    if changed is None:
        return Changes()
    draft.put(changed)
    return draft.changes()
