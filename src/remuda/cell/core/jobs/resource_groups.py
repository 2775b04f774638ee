"""The order in which jobs get a resource group, by its process mode. The stores compute the same order in SQL, to find
the groups that other pipelines have or get first (`Transaction.find_taken_groups`)."""

from collections.abc import Iterable

from remuda.cell.values import Job
from remuda.cell.values.deployments import (
    NEWEST_FIRST,
    NEWEST_READY_FIRST,
    OLDEST_FIRST,
    UNORDERED,
    UPCOMING,
)
from remuda.model.job import JobState, PipelineId

_WAITING = JobState.WAITING_FOR_RESOURCE


def goes_before(job: Job, pipeline_id: PipelineId, mode: str) -> bool:
    """Return whether `job`, of another pipeline, gets the group before the jobs of the pipeline `pipeline_id`, although
    it may not be ready. With the mode `unordered`, no job has to wait for one that does not use the group."""
    if job.retried or job.state not in UPCOMING:
        return False
    if mode == OLDEST_FIRST:
        return job.pipeline_id < pipeline_id
    if mode == NEWEST_FIRST:
        return job.pipeline_id > pipeline_id
    return mode == NEWEST_READY_FIRST and job.pipeline_id > pipeline_id and job.state is _WAITING


def order_upcoming(jobs: Iterable[Job], mode: str) -> list[Job]:
    """Return the jobs of a resource group that will use it, the next one first. As in GitLab, jobs that are not ready
    are included only if the mode lets others wait for them."""
    states = {_WAITING} if mode in (UNORDERED, NEWEST_READY_FIRST) else UPCOMING
    upcoming = [job for job in jobs if job.state in states and not job.retried]
    sign = {OLDEST_FIRST: 1, NEWEST_FIRST: -1, NEWEST_READY_FIRST: -1}.get(mode, 0)
    return sorted(upcoming, key=lambda job: (sign * job.pipeline_id, job.state is not _WAITING, job.id))
