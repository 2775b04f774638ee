"""Which other jobs hold a job up, made it be skipped, or had it canceled.

Decided here: who of a pipeline counts as the cause. The rules by which a job gets its turn are in
`remuda.model.progress`; this only looks back at them. Pure, called by `core.why`.
"""

import math
from collections import deque

import msgspec

from remuda.cell.values import Family, Job
from remuda.model.job import FINAL, JobState
from remuda.model.progress import When

_ENDED_BADLY = frozenset({JobState.FAILED, JobState.CANCELED})
_DID_NOT_RUN = frozenset({JobState.SKIPPED, JobState.MANUAL})


class SkipReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why something did not happen."""

    text: str
    jobs: tuple[Job, ...] = ()


def prerequisites(job: Job, family: Family) -> list[Job]:
    """The jobs whose ends decide about this one's turn, by stage."""
    names = frozenset(job.waits_for)
    found = (
        other
        for other in family.jobs
        if (other.stage_index < job.stage_index if job.by_stage else other.name in names) and other.name != job.name
    )
    return sorted(found, key=lambda other: (other.stage_index, other.id))


def is_blocking(job: Job) -> bool:
    """Whether those behind a job wait for it: it is not over, and no manual one that need not be started."""
    return job.state not in FINAL and not (job.state is JobState.MANUAL and job.allow_failure)


def open_prerequisites(job: Job, family: Family) -> list[Job]:
    """Those of them that are not over."""
    return [other for other in prerequisites(job, family) if is_blocking(other)]


def explain_skip(job: Job, family: Family) -> SkipReason:
    """Why a job's turn never came."""
    decided = prerequisites(job, family)
    if job.when is When.ON_FAILURE and not any(_is_bad(other) for other in decided):
        return SkipReason(text="it runs only when a job before it fails, and none did")
    causes = _roots(job, family) or [
        other for other in decided if not job.by_stage and (other.state in _DID_NOT_RUN or other.state in _ENDED_BADLY)
    ]
    if not causes:
        return SkipReason(text="what it waited for did not come to the end that it needs")
    shown = ", ".join(f'"{other.name}" ({other.status()})' for other in causes[:3])
    more = f" and {len(causes) - 3} more" if len(causes) > 3 else ""
    return SkipReason(text=f"because of {shown}{more}", jobs=tuple(causes))


def find_cancel_causes(job: Job, family: Family) -> list[Job]:
    """The failures that stopped a job, where its pipeline is one that stops then; not those that came later."""
    if family.pipeline.cancel_on_job_failure != "all":
        return []
    ended = math.inf if job.finished_at is None else job.finished_at
    failed = (other for other in family.jobs if other.state is JobState.FAILED and not other.allow_failure)
    return [other for other in failed if (other.finished_at or 0.0) <= ended]


def _is_bad(job: Job) -> bool:
    return job.state in _ENDED_BADLY and not job.allow_failure


def _roots(job: Job, family: Family) -> list[Job]:
    """The jobs that failed or were canceled at the bottom of it: a job may be skipped because another was."""
    found: dict[str, Job] = {}
    seen = {job.name}
    waiting = deque(prerequisites(job, family))
    while waiting:
        other = waiting.popleft()
        if other.name in seen:
            continue
        seen.add(other.name)
        if _is_bad(other):
            found[other.name] = other
        elif other.state is JobState.SKIPPED and not job.by_stage:
            waiting += prerequisites(other, family)
    return list(found.values())
