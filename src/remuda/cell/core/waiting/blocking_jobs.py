"""Finds the jobs that a job waits for, and those because of which it was skipped or canceled."""

import math
from collections import deque

import msgspec

from remuda.cell.values import Family, Job
from remuda.model.job import FINAL, JobState
from remuda.model.progress import When

_ENDED_BADLY = frozenset({JobState.FAILED, JobState.CANCELED})
_DID_NOT_RUN = frozenset({JobState.SKIPPED, JobState.MANUAL})


class SkipReason(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    jobs: tuple[Job, ...] = ()


def prerequisites(job: Job, family: Family) -> list[Job]:
    """Return the jobs that must end before this job is enqueued (earlier stages, or its `needs`), ordered by stage."""
    names = frozenset(job.waits_for)
    jobs = (
        other
        for other in family.jobs
        if (other.stage_index < job.stage_index if job.by_stage else other.name in names) and other.name != job.name
    )
    return sorted(jobs, key=lambda other: (other.stage_index, other.id))


def is_blocking(job: Job) -> bool:
    """Return whether later jobs wait for this one: it has not ended, and is not manual with `allow_failure`."""
    return job.state not in FINAL and not (job.state is JobState.MANUAL and job.allow_failure)


def open_prerequisites(job: Job, family: Family) -> list[Job]:
    return [other for other in prerequisites(job, family) if is_blocking(other)]


def explain_skip(job: Job, family: Family) -> SkipReason:
    earlier = prerequisites(job, family)
    if job.when is When.ON_FAILURE and not any(_is_bad(other) for other in earlier):
        return SkipReason(text="it runs only when a job before it fails, and none did")
    causes = _roots(job, family) or [
        other for other in earlier if not job.by_stage and (other.state in _DID_NOT_RUN or other.state in _ENDED_BADLY)
    ]
    if not causes:
        return SkipReason(text="the jobs that it waited for did not end as it requires")
    shown = ", ".join(f'"{other.name}" ({other.status()})' for other in causes[:3])
    more = f" and {len(causes) - 3} more" if len(causes) > 3 else ""
    return SkipReason(text=f"because of {shown}{more}", jobs=tuple(causes))


def find_cancel_causes(job: Job, family: Family) -> list[Job]:
    """Return the failed jobs because of which this job was canceled (by the setting `cancel_on_job_failure`)."""
    if family.pipeline.cancel_on_job_failure != "all":
        return []
    ended = math.inf if job.finished_at is None else job.finished_at
    failed = (other for other in family.jobs if other.state is JobState.FAILED and not other.allow_failure)
    return [other for other in failed if (other.finished_at or 0.0) <= ended]


def _is_bad(job: Job) -> bool:
    return job.state in _ENDED_BADLY and not job.allow_failure


def _roots(job: Job, family: Family) -> list[Job]:
    """Return the failed or canceled jobs because of which a job is skipped, directly or through skipped jobs."""
    roots: dict[str, Job] = {}
    seen = {job.name}
    waiting = deque(prerequisites(job, family))
    while waiting:
        other = waiting.popleft()
        if other.name in seen:
            continue
        seen.add(other.name)
        if _is_bad(other):
            roots[other.name] = other
        elif other.state is JobState.SKIPPED and not job.by_stage:
            waiting += prerequisites(other, family)
    return list(roots.values())
