"""Which pipelines a newer one of the same ref makes redundant, and what they lose.

Decided here: by the older pipeline's own `workflow:auto_cancel`. `conservative` stops all of it as long as nothing has
started that must not be interrupted; `interruptible` stops only the jobs that may be. A child pipeline is asked for
itself, so that its parent does not stop what it would keep. Called by `remuda.cell.pipelines.creation` after a pipeline
was stored; `cancel` runs inside the store's transaction.
"""

from remuda.cell.core.jobs.family import FamilyDraft
from remuda.cell.values import Family, Job, Pipeline
from remuda.cell.values.changes import Changes
from remuda.model.job import JobState

_NOT_BY_A_COMMIT = frozenset({"schedule", "parent_pipeline"})
"""Sources of pipelines that say nothing about a newer commit."""
ASKED_WITHIN_SECONDS = 7 * 86400
"""A pipeline may wait for a person for ever. After so long it was asked often enough, and there may be thousands."""


def is_replaced(old: Pipeline, newest: Pipeline) -> bool:
    """Whether an older pipeline was about a commit that the ref has left behind, and can be asked."""
    return (
        newest.source not in _NOT_BY_A_COMMIT
        and old.cancel_on_new_commit != "none"
        and old.id < newest.id
        and old.sha != newest.sha
        and old.tag == newest.tag
        and newest.created_at - old.created_at < ASKED_WITHIN_SECONDS
    )


def cancel(family: Family, now: float) -> Changes:
    """Stop what may be stopped."""
    mode = family.pipeline.cancel_on_new_commit
    if mode == "interruptible":
        stopped = [job for job in family.jobs if job.interruptible]
    elif mode == "conservative" and all(job.interruptible or not _has_started(job) for job in family.jobs):
        stopped = list(family.jobs)
    else:
        stopped = []
    draft = FamilyDraft(family, now)
    for job in stopped:
        if not _stands_for_another(job):
            draft.cancel(job)
    return draft.changes() if stopped else Changes()


def _has_started(job: Job) -> bool:
    """A job that was handed out is taken for one that runs, as in GitLab; a trigger job runs nothing itself."""
    return not job.is_trigger and (job.started_at is not None or job.state is JobState.LEASED)


def _stands_for_another(job: Job) -> bool:
    """Whether the job only waits for a pipeline that was started, and ends with it."""
    return job.is_trigger and job.state is JobState.RUNNING and job.downstream_id is not None
