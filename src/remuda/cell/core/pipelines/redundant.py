"""Cancels pipelines that a newer pipeline of the same ref makes redundant, as their own `workflow:auto_cancel` says.
`conservative` cancels the whole pipeline unless a job that is not interruptible has started; `interruptible` cancels
only interruptible jobs. Each child pipeline is checked separately with its own settings, so canceling a parent does not
cancel jobs that its child must not stop."""

from remuda.cell.core.jobs.family import FamilyDraft
from remuda.cell.values import Family, Job, Pipeline
from remuda.cell.values.changes import Changes
from remuda.model.job import JobState

_NOT_BY_A_COMMIT = frozenset({"schedule", "parent_pipeline"})
"""Sources of pipelines that do not mean that there is a newer commit."""
ASKED_WITHIN_SECONDS = 7 * 86400
"""Older pipelines are not checked any more: some wait for a person for ever, and there may be thousands."""


def is_replaced(old: Pipeline, newest: Pipeline) -> bool:
    """Return whether jobs of `old` may be canceled because of `newest`, a newer pipeline of the same ref name. False if
    the settings of `old` forbid it, both are for the same commit, only one is for a tag, `newest` is of a schedule or a
    child pipeline, or `old` is too old (`ASKED_WITHIN_SECONDS`)."""
    return (
        newest.source not in _NOT_BY_A_COMMIT
        and old.cancel_on_new_commit != "none"
        and old.id < newest.id
        and old.sha != newest.sha
        and old.tag == newest.tag
        and newest.created_at - old.created_at < ASKED_WITHIN_SECONDS
    )


def cancel(family: Family, now: float) -> Changes:
    """Cancel jobs of a redundant pipeline by its `auto_cancel` mode, but no trigger job that has started a pipeline."""
    mode = family.pipeline.cancel_on_new_commit
    if mode == "interruptible":
        stopped = [job for job in family.jobs if job.interruptible]
    elif mode == "conservative" and all(job.interruptible or not _has_started(job) for job in family.jobs):
        stopped = list(family.jobs)
    else:
        stopped = []
    draft = FamilyDraft(family, now)
    for job in stopped:
        if not _waits_for_downstream(job):
            draft.cancel(job)
    return draft.changes() if stopped else Changes()


def _has_started(job: Job) -> bool:
    """Return whether a job has started. As in GitLab, a leased job counts as started, and a trigger job never does."""
    return not job.is_trigger and (job.started_at is not None or job.state is JobState.LEASED)


def _waits_for_downstream(job: Job) -> bool:
    """Return whether the job is a trigger job that only waits for the end of its downstream pipeline."""
    return job.is_trigger and job.state is JobState.RUNNING and job.downstream_id is not None
