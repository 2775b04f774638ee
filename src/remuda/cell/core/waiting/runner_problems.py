"""Finds runners that need attention: offline or blocked, or most of their latest jobs failed. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from remuda.cell.core.waiting.no_runner_reasons import RunnerView
from remuda.cell.values import Job
from remuda.cell.values.people import ONLINE_SECONDS, PRESENT_SECONDS, STALE_SECONDS
from remuda.model.job import FailureReason, Fault, JobId, JobState, RunnerId, fault_of

LEAST_JOBS = 5
"""A runner with fewer recent jobs has no failure rate."""
HIGH_RATE = 0.5
LEAST_RUNNER_FAULTS = 3
"""So many recent failures of the runner itself are a problem, whatever the rate is."""
RATE_SECONDS = 6 * 3600
"""Only jobs that ended within this time count."""


class RunnerProblem(msgspec.Struct, frozen=True, kw_only=True):
    view: RunnerView
    kind: str
    """blocked, failing, offline or silent"""
    text: str


class Outcomes(msgspec.Struct, kw_only=True):
    """How the recent jobs of a runner ended."""

    ended: int = 0
    failed: int = 0
    by_runner: int = 0
    """Failures that are the fault of the runner or its machine."""


def count_outcomes(jobs: Iterable[Job], now: float) -> dict[RunnerId, Outcomes]:
    """Count how the jobs that ended in the last `RATE_SECONDS` ended, by runner. Each job counts once."""
    outcomes: defaultdict[RunnerId, Outcomes] = defaultdict(Outcomes)
    seen: set[JobId] = set()
    for job in jobs:
        is_recent = job.finished_at is not None and now - job.finished_at < RATE_SECONDS
        if job.runner_id is None or not is_recent or job.id in seen:
            continue
        seen.add(job.id)
        outcome = outcomes[job.runner_id]
        outcome.ended += 1
        if job.state is JobState.FAILED:
            outcome.failed += 1
            outcome.by_runner += _is_fault_of_runner(job)
    return dict(outcomes)


def _is_fault_of_runner(job: Job) -> bool:
    try:
        return fault_of(FailureReason(job.failure_reason or "")) is Fault.RUNNER
    except ValueError:
        return False


def find_problems(
    views: Iterable[RunnerView], outcomes: Mapping[RunnerId, Outcomes], now: float
) -> list[RunnerProblem]:
    """Return the runners with a problem, the most urgent kind first. Paused runners have none, and neither have those
    that never called or are stale: nobody waits for them."""
    problems = []
    for view in views:
        if view.runner.paused:
            continue
        if problem := _find_problem(view, outcomes.get(view.runner.id), now):
            problems.append(problem)
    order = ("blocked", "failing", "offline", "silent")
    return sorted(problems, key=lambda problem: (order.index(problem.kind), problem.view.runner.id))


def _find_problem(view: RunnerView, outcomes: Outcomes | None, now: float) -> RunnerProblem | None:
    if view.problem:
        return RunnerProblem(view=view, kind="blocked", text=view.problem)
    if outcomes is not None:
        is_high = outcomes.ended >= LEAST_JOBS and outcomes.failed >= HIGH_RATE * outcomes.ended
        if is_high or outcomes.by_runner >= LEAST_RUNNER_FAULTS:
            own = f", {outcomes.by_runner} of them by the runner or its machine" if outcomes.by_runner else ""
            text = f"{outcomes.failed} of its last {outcomes.ended} jobs failed{own}"
            return RunnerProblem(view=view, kind="failing", text=text)
    if view.contacted_at is None or view.jobs:
        return None
    away = now - view.contacted_at
    if ONLINE_SECONDS <= away < STALE_SECONDS:
        return RunnerProblem(view=view, kind="offline", text="none of its managers has called for hours")
    if PRESENT_SECONDS <= away < ONLINE_SECONDS:
        return RunnerProblem(view=view, kind="silent", text="none of its managers has called for some minutes")
    return None
