"""State changes of trigger jobs, which start a downstream pipeline and get no runner. Without `trigger:strategy` such a
job succeeds once that pipeline exists. With `depend` or `mirror` it runs as long as the pipeline, ends with the same
result, and runs again if the pipeline is retried. All functions are idempotent: a repeated call changes nothing."""

from msgspec.structs import replace

from remuda.cell.core.jobs.family import FamilyDraft, Outcome
from remuda.cell.values import Family, Job, Pipeline
from remuda.cell.values.changes import Changes
from remuda.model.job import FailureReason, JobEvent, JobId, JobState, after
from remuda.model.progress import OVER

MIRROR = "mirror"


def start(family: Family, job_id: JobId, now: float) -> Changes:
    """Mark a pending trigger job as running. If it is canceled later, it waits until its downstream pipeline stops."""
    draft = FamilyDraft(family, now)
    job = draft.find(job_id)
    if job is None or job.state is not JobState.PENDING:
        return Changes()
    running = after(after(job.state, JobEvent.LEASE), JobEvent.ACKNOWLEDGE)
    draft.put(replace(job, state=running, leased_at=now, started_at=now, updated_at=now))
    return draft.changes()


def fail(family: Family, job_id: JobId, reason: FailureReason, message: str, now: float) -> Changes:
    """Fail a running or canceling trigger job, because its downstream pipeline cannot be created."""
    draft = FamilyDraft(family, now)
    job = draft.find(job_id)
    if job is None or job.state not in (JobState.RUNNING, JobState.CANCELING):
        return Changes()
    draft.end(job, Outcome(succeeded=False, reason=reason, message=message))
    return draft.changes()


def stop(family: Family, job_id: JobId, now: float) -> Changes:
    """End a trigger job that is being canceled and has no downstream pipeline to wait for."""
    draft = FamilyDraft(family, now)
    job = draft.find(job_id)
    if job is None or job.state is not JobState.CANCELING:
        return Changes()
    draft.move(job, JobEvent.ABORT)
    return draft.changes()


def follow(family: Family, job_id: JobId, downstream: Pipeline, strategy: str, now: float) -> Changes:
    """Change a trigger job to match the status of its downstream pipeline: it keeps running, ends, or runs again.
    `strategy` is `trigger:strategy`; if it is empty, the job succeeds as soon as the pipeline exists."""
    draft = FamilyDraft(family, now)
    job = draft.find(job_id)
    end = _end(strategy, downstream.status)
    reopened = job is not None and bool(strategy) and _runs_again(job, downstream, end)
    if job is not None and reopened:
        draft.move(replace(job, failure_reason=None, failure_message=None), JobEvent.REOPEN)
        draft.revive_behind(job)
        job = draft.get(job_id)
    if job is None:
        return Changes()
    if job.state is JobState.CANCELING:
        end = JobEvent.ABORT if downstream.status in OVER or not downstream.is_child else None
    elif job.state is not JobState.RUNNING:
        return Changes()
    if end is None and job.downstream_id == downstream.id and not reopened:
        return Changes()
    job = replace(job, downstream_id=downstream.id)
    if end is None:
        draft.put(job)
    elif end is JobEvent.ABORT:
        draft.move(job, end)
    else:
        message = f"its downstream pipeline {downstream.id} is {downstream.status}"
        draft.end(job, Outcome(succeeded=end is JobEvent.SUCCEED, message=message))
    return draft.changes()


def _end(strategy: str, status: str) -> JobEvent | None:
    """Return the event that ends a running trigger job, by its downstream pipeline and strategy; None: it runs on."""
    if not strategy or status == "success":
        return JobEvent.SUCCEED
    if status == "skipped":
        # Nothing ran. A job that depends on the pipeline fails; a job that mirrors it shows that nothing went wrong.
        return JobEvent.SUCCEED if strategy == MIRROR else JobEvent.FAIL
    return {"failed": JobEvent.FAIL, "canceled": JobEvent.ABORT}.get(status)


def _runs_again(job: Job, downstream: Pipeline, end: JobEvent | None) -> bool:
    """Return whether an ended trigger job runs again, because its downstream pipeline was retried. `end` is the event
    with which that pipeline's status would end the job (None: the pipeline still runs). A canceled job runs again only
    while its child pipeline runs, and never because of a pipeline of another project."""
    if job.downstream_id != downstream.id:
        return False
    if job.state is JobState.CANCELED:
        return downstream.is_child and end is None
    ended = job.state in (JobState.SUCCESS, JobState.FAILED)
    return ended and (end is None or after(JobState.RUNNING, end) is not job.state)
