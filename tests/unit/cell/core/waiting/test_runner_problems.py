"""Runners that need attention."""

from typing import Any

import pytest

from remuda.cell.core.waiting.no_runner_reasons import RunnerView
from remuda.cell.core.waiting.runner_problems import RATE_SECONDS, Outcomes, count_outcomes, find_problems
from remuda.cell.values.people import ONLINE_SECONDS, PRESENT_SECONDS, STALE_SECONDS
from remuda.model.job import JobId, JobState, RunnerId
from remuda.testing.builders import a_job, a_runner

NOW = 10_000_000.0


def a_view(number: int = 1, *, away: float | None = 0, paused: bool = False, **more: Any) -> RunnerView:
    contacted_at = None if away is None else NOW - away
    return RunnerView(runner=a_runner(id=RunnerId(number), paused=paused), contacted_at=contacted_at, **more)


def kinds(*views: RunnerView, outcomes: Outcomes | None = None) -> list[str]:
    found = find_problems(views, {RunnerId(1): outcomes} if outcomes else {}, NOW)
    return [problem.kind for problem in found]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (a_view(), []),
        (a_view(problem="no engine"), ["blocked"]),
        (a_view(problem="no engine", paused=True), []),
        (a_view(away=PRESENT_SECONDS), ["silent"]),
        (a_view(away=PRESENT_SECONDS, jobs=1), []),
        (a_view(away=ONLINE_SECONDS), ["offline"]),
        (a_view(away=STALE_SECONDS), []),
        (a_view(away=None), []),
    ],
)
def test_contact(view: RunnerView, expected: list[str]) -> None:
    assert kinds(view) == expected


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (Outcomes(ended=4, failed=4), []),
        (Outcomes(ended=10, failed=4), []),
        (Outcomes(ended=10, failed=5), ["failing"]),
        (Outcomes(ended=100, failed=3, by_runner=3), ["failing"]),
    ],
)
def test_failure_rates(outcomes: Outcomes, expected: list[str]) -> None:
    assert kinds(a_view(), outcomes=outcomes) == expected


def test_the_most_urgent_come_first() -> None:
    assert kinds(a_view(1, away=ONLINE_SECONDS), a_view(2, problem="x")) == ["blocked", "offline"]


def test_only_recent_jobs_count_and_each_once() -> None:
    runner_id = RunnerId(1)
    failed: dict[str, Any] = {"state": JobState.FAILED, "runner_id": runner_id, "finished_at": NOW - 1}
    jobs = [
        a_job(id=JobId(1), **failed, failure_reason="runner_system_failure"),
        a_job(id=JobId(1), **failed, failure_reason="runner_system_failure"),
        a_job(id=JobId(2), **failed, failure_reason="script_failure"),
        a_job(id=JobId(3), **failed, failure_reason="unheard of"),
        a_job(id=JobId(4), state=JobState.SUCCESS, runner_id=runner_id, finished_at=NOW - 1),
        a_job(id=JobId(5), state=JobState.SUCCESS, runner_id=runner_id, finished_at=NOW - RATE_SECONDS),
        a_job(id=JobId(6), state=JobState.SUCCESS, runner_id=None, finished_at=NOW),
    ]
    assert count_outcomes(jobs, NOW) == {runner_id: Outcomes(ended=4, failed=3, by_runner=1)}
