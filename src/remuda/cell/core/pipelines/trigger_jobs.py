"""Trigger jobs: jobs that no runner gets, because each stands for a pipeline that it starts.

Decided here: how such a job follows its downstream pipeline. Without a strategy it is done once that pipeline exists;
with `depend` or `mirror` it runs as long as that does, ends as that does, and goes on when that goes on after all.
Which pipeline it starts is worked out by `remuda.cell.pipelines.trigger_jobs`, which calls these inside the store's
transaction, as often as it likes: each looks at how things stand, not at what happened.
"""

from msgspec.structs import replace

from remuda.cell.core.jobs.family import FamilyDraft, Outcome
from remuda.cell.values import Family, Job, Pipeline
from remuda.cell.values.changes import Changes
from remuda.model.job import FailureReason, JobEvent, JobId, JobState, after
from remuda.model.progress import OVER

MIRROR = "mirror"


def start(family: Family, job_id: JobId, now: float) -> Changes:
    """The cell itself takes the job, so that whoever cancels it from now on waits for what it may have started."""
    draft = FamilyDraft(family, now)
    job = draft.find(job_id)
    if job is None or job.state is not JobState.PENDING:
        return Changes()
    running = after(after(job.state, JobEvent.LEASE), JobEvent.ACKNOWLEDGE)
    draft.put(replace(job, state=running, leased_at=now, started_at=now, updated_at=now))
    return draft.changes()


def fail(family: Family, job_id: JobId, reason: FailureReason, message: str, now: float) -> Changes:
    """There will be no downstream pipeline."""
    draft = FamilyDraft(family, now)
    job = draft.find(job_id)
    if job is None or job.state not in (JobState.RUNNING, JobState.CANCELING):
        return Changes()
    draft.end(job, Outcome(succeeded=False, reason=reason, message=message))
    return draft.changes()


def stop(family: Family, job_id: JobId, now: float) -> Changes:
    """A job that is being canceled has started nothing that it would have to wait for."""
    draft = FamilyDraft(family, now)
    job = draft.find(job_id)
    if job is None or job.state is not JobState.CANCELING:
        return Changes()
    draft.move(job, JobEvent.ABORT)
    return draft.changes()


def follow(family: Family, job_id: JobId, downstream: Pipeline, strategy: str, now: float) -> Changes:
    """Let the job stand as its downstream pipeline does."""
    draft = FamilyDraft(family, now)
    job = draft.find(job_id)
    end = _end(strategy, downstream.status)
    reopened = job is not None and bool(strategy) and _goes_on(job, downstream, end)
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
        message = f"its pipeline {downstream.id} is {downstream.status}"
        draft.end(job, Outcome(succeeded=end is JobEvent.SUCCEED, message=message))
    return draft.changes()


def _end(strategy: str, status: str) -> JobEvent | None:
    """How a running job ends where its pipeline has this status; None: it goes on."""
    if not strategy or status == "success":
        return JobEvent.SUCCEED
    if status == "skipped":
        # Nothing ran. Who depends on it misses something; who mirrors it shows that nothing is wrong.
        return JobEvent.SUCCEED if strategy == MIRROR else JobEvent.FAIL
    return {"failed": JobEvent.FAIL, "canceled": JobEvent.ABORT}.get(status)


def _goes_on(job: Job, downstream: Pipeline, end: JobEvent | None) -> bool:
    """Whether the job is over and its pipeline, retried since, says otherwise.

    A canceled job waited only for a child pipeline to stop. Of another project's it never knew the end, and of a
    child's it tells nothing that one ended otherwise than canceled: only a child that is under way again counts.
    """
    if job.downstream_id != downstream.id:
        return False
    if job.state is JobState.CANCELED:
        return downstream.is_child and end is None
    ended = job.state in (JobState.SUCCESS, JobState.FAILED)
    return ended and (end is None or after(JobState.RUNNING, end) is not job.state)
