"""What the pages of a pipeline show of its jobs: stages, groups of parallel jobs, and in words why a job waits."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from unicodedata import bidirectional

import msgspec

from remuda.wire.user_api import JobProgress, PipelineProgress

_PARALLEL = re.compile(r"(.+?)(?: \d+/\d+|: \[.*\])", re.DOTALL)
"""Names of jobs that `parallel` created: `test 1/4`, `test: [linux, gcc]`."""
LEAST_GROUPED = 4
"""Fewer parallel jobs of a name are shown one by one."""
ORDER_OF_STATUSES = (
    "failed",
    "running",
    "canceling",
    "pending",
    "preparing",
    "waiting_for_resource",
    "scheduled",
    "manual",
    "created",
    "canceled",
    "skipped",
    "success",
)
"""What needs attention first."""
NOT_STARTED = frozenset({"created", "pending", "preparing", "waiting_for_resource", "scheduled", "manual"})
OVER = frozenset({"success", "failed", "canceled", "skipped"})
_NAMED = 3
_COUNTED = 10
"""The API names at most so many jobs that a job waits for."""
_ISOLATE, _END_OF_ISOLATE = "\u2068", "\u2069"
_LEFT_TO_RIGHT = frozenset(("L", "EN", "ES", "ET", "CS", "ON", "WS", "NSM", "BN", "B", "S"))
"""Classes of characters that do not change the direction of text around them."""


class JobGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One job, or several parallel jobs that are shown as one entry."""

    name: str
    jobs: tuple[JobProgress, ...]

    @property
    def counts(self) -> list[tuple[str, int]]:
        return count_statuses(self.jobs)


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    groups: tuple[JobGroup, ...]

    @property
    def jobs(self) -> tuple[JobProgress, ...]:
        return tuple(job for group in self.groups for job in group.jobs)


def count_statuses(jobs: Collection[JobProgress]) -> list[tuple[str, int]]:
    """Return the statuses of the jobs with their numbers, those that need attention first."""
    counts = Counter(job.status for job in jobs)
    return sorted(counts.items(), key=lambda entry: _rank(entry[0]))


def _rank(status: str) -> int:
    return ORDER_OF_STATUSES.index(status) if status in ORDER_OF_STATUSES else len(ORDER_OF_STATUSES)


def sort_into_stages(jobs: Sequence[JobProgress]) -> list[Stage]:
    """Return the stages of a pipeline in their order, with parallel jobs of one name as groups."""
    stages: dict[tuple[int, str], dict[str, list[JobProgress]]] = {}
    for job in jobs:
        match = _PARALLEL.fullmatch(job.name)
        groups = stages.setdefault((job.stage_index, job.stage), {})
        groups.setdefault(match[1] if match else job.name, []).append(job)
    return [
        Stage(name=name, groups=tuple(entry for base, members in groups.items() for entry in _split(base, members)))
        for (_, name), groups in sorted(stages.items())
    ]


def _split(name: str, jobs: Sequence[JobProgress]) -> list[JobGroup]:
    if len(jobs) >= LEAST_GROUPED:
        return [JobGroup(name=name, jobs=tuple(jobs))]
    return [JobGroup(name=job.name, jobs=(job,)) for job in jobs]


def explain_state(job: JobProgress) -> str:
    """Return why a job waits, or why it failed; empty for a job that needs no explanation."""
    if job.status == "created" and job.waits_for:
        return f"after {join_names(job.waits_for)}" + (f"; {job.no_runner_reason}" if job.no_runner_reason else "")
    if job.status in NOT_STARTED and job.no_runner_reason:
        return job.no_runner_reason
    match job.status:
        case "pending" if not job.is_trigger:
            return "waits for a free runner"
        case "manual":
            return "waits until someone starts it" + (", optional" if job.allow_failure else "")
        case "scheduled":
            return "starts later"
        case "waiting_for_resource":
            return f"waits for the resource group {job.resource_group}"
        case "failed":
            code = f" (exit code {job.exit_code})" if job.exit_code is not None else ""
            return (job.failure_message or (job.failure_reason or "").replace("_", " ")) + code
    return ""


def join_names(names: Sequence[str]) -> str:
    """Return the first few names as a text, and how many more there are. A character in a name that changes the
    direction of text has no effect beyond the name."""
    more = len(names) - _NAMED
    rest = "" if more <= 0 else " and others" if len(names) >= _COUNTED else f" and {more} more"
    return ", ".join(map(_isolate, names[:_NAMED])) + rest


def _isolate(name: str) -> str:
    is_directed = any(bidirectional(character) not in _LEFT_TO_RIGHT for character in name)
    return f"{_ISOLATE}{name}{_END_OF_ISOLATE}" if is_directed else name


def list_downstream(progress: PipelineProgress) -> list[tuple[JobProgress, PipelineProgress]]:
    """Return the pipelines that a pipeline's trigger jobs started, each with its trigger job."""
    return [(job, job.downstream) for job in progress.jobs if job.downstream is not None]


def list_pipeline_ids(progress: PipelineProgress) -> list[int]:
    """Return the ids of a pipeline and of all that it started, directly or not."""
    return [progress.id, *(number for _, child in list_downstream(progress) for number in list_pipeline_ids(child))]
