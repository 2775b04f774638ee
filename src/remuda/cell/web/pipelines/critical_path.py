"""Finds the critical path of a pipeline: the chain of jobs that determined when it ended, or what it is busy with now.

The chain is found from its end: the job that ended last, then, of the jobs that it waited for, the one that ended last,
and so on. The costs of its jobs add up to the time from the pipeline's creation to the end of the chain."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from remuda.wire.user_api import JobProgress

_TOLERANCE_SECONDS = 1.0
"""A job counts as the cause of another one if it ended at most this long after the other became ready: times of
several processes of a cell may differ a little."""


class PathStep(msgspec.Struct, frozen=True, kw_only=True):
    """A job on the critical path, and how long each phase of it took."""

    job: JobProgress
    held_seconds: float
    """From the end of the job before it (for the first: the creation of the pipeline) until it was ready for a runner:
    a manual start, a delay, a resource group or earlier attempts."""
    waiting_seconds: float
    """From ready until a runner started it."""
    running_seconds: float


class CriticalPath(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[PathStep, ...] = ()

    @property
    def held_seconds(self) -> float:
        return sum(step.held_seconds for step in self.steps)

    @property
    def waiting_seconds(self) -> float:
        return sum(step.waiting_seconds for step in self.steps)

    @property
    def running_seconds(self) -> float:
        return sum(step.running_seconds for step in self.steps)

    @property
    def total_seconds(self) -> float:
        return self.held_seconds + self.waiting_seconds + self.running_seconds

    @property
    def job_ids(self) -> frozenset[int]:
        return frozenset(step.job.id for step in self.steps)

    @property
    def edges(self) -> frozenset[tuple[str, str]]:
        """Pairs of names: a job of the path, and the one that followed it."""
        names = [step.job.name for step in self.steps]
        return frozenset(pairwise(names))


def ready_time(job: JobProgress) -> float | None:
    """Return when a job could start: it was ready for a runner. None if it never was."""
    return job.pending_at if job.pending_at is not None else job.started_at


def end_time(job: JobProgress, now: float) -> float | None:
    """Return when a job ended, or `now` if it runs or waits for a runner; None if it never was ready to start."""
    if ready_time(job) is None:
        return None
    return job.finished_at if job.finished_at is not None else now


def find_critical_path(jobs: Sequence[JobProgress], *, created_at: float, now: float) -> CriticalPath:
    """Return the critical path of a pipeline with these jobs, in the order in which they ran. `created_at`: when the
    pipeline was created. The path is empty if no job was ever ready."""
    ends = {job.name: end for job in jobs if (end := end_time(job, now)) is not None}
    by_name = {job.name: job for job in jobs if job.name in ends}
    before = _Earlier(list(by_name.values()), ends)
    last = max(by_name.values(), key=lambda job: (ends[job.name], -(ready_time(job) or 0.0)), default=None)
    chain: list[JobProgress] = []
    seen: set[str] = set()
    while last is not None and last.name not in seen:
        chain.append(last)
        seen.add(last.name)
        latest = (ready_time(last) or 0.0) + _TOLERANCE_SECONDS
        causes = before.find(last) if last.by_stage else (by_name[name] for name in last.needs if name in by_name)
        last = max(
            (job for job in causes if ends[job.name] <= latest), key=lambda job: (ends[job.name], job.id), default=None
        )
    return CriticalPath(steps=tuple(_measure(chain[::-1], created_at, ends)))


class _Earlier:
    """Finds the jobs of earlier stages that ended last, without reading all jobs for each job of the path."""

    def __init__(self, jobs: Sequence[JobProgress], ends: dict[str, float]) -> None:
        self._jobs = sorted(jobs, key=lambda job: job.stage_index)
        self._last: list[JobProgress] = []
        """For each of `_jobs`: which of it and those before it ended last."""
        for job in self._jobs:
            best = self._last[-1] if self._last else job
            self._last.append(job if ends[job.name] > ends[best.name] else best)

    def find(self, job: JobProgress) -> Sequence[JobProgress]:
        """Return the job that ended last of all stages before that of `job`. If it ended after `job` became ready (it
        was retried later), return all jobs of these stages, from which the caller selects."""
        count = bisect_left(self._jobs, job.stage_index, key=lambda other: other.stage_index)
        if not count:
            return ()
        best = self._last[count - 1]
        if (best.finished_at or float("inf")) <= (ready_time(job) or 0.0) + _TOLERANCE_SECONDS:
            return (best,)
        return self._jobs[:count]


def _measure(chain: Sequence[JobProgress], created_at: float, ends: dict[str, float]) -> Iterator[PathStep]:
    previous_end = created_at
    for job in chain:
        ready, end = max(ready_time(job) or previous_end, previous_end), ends[job.name]
        started = end if job.started_at is None else min(max(job.started_at, ready), end)
        yield PathStep(
            job=job,
            held_seconds=max(ready - previous_end, 0.0),
            waiting_seconds=max(started - ready, 0.0),
            running_seconds=max(end - started, 0.0),
        )
        previous_end = max(end, previous_end)
