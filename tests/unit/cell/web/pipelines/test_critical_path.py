"""The critical path: the chain of jobs that determined when a pipeline ended."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.web.pipelines.critical_path import CriticalPath, find_critical_path
from remuda.wire.user_api import JobProgress


def a_job(name: str, ready: float | None, start: float | None, end: float | None, **more: Any) -> JobProgress:
    values: dict[str, Any] = {"id": sum(map(ord, name)), "stage": "s", "status": "success", "created_at": 0.0} | more
    return JobProgress(name=name, pending_at=ready, started_at=start, finished_at=end, **values)


def find(*jobs: JobProgress, now: float = 1000.0) -> CriticalPath:
    return find_critical_path(jobs, created_at=0.0, now=now)


def costs(path: CriticalPath) -> list[tuple[str, float, float, float]]:
    return [(step.job.name, step.held_seconds, step.waiting_seconds, step.running_seconds) for step in path.steps]


def test_a_chain_of_needs() -> None:
    path = find(
        a_job("build", 0, 2, 12),
        a_job("lint", 0, 1, 30),
        a_job("test", 12, 15, 50, needs=("build",)),
        a_job("ship", 50, 50, 60, needs=("test", "lint")),
    )
    assert costs(path) == [("build", 0, 2, 10), ("test", 0, 3, 35), ("ship", 0, 0, 10)]
    assert (path.waiting_seconds, path.running_seconds, path.total_seconds) == (5, 55, 60)
    assert path.edges == {("build", "test"), ("test", "ship")}


def test_a_job_by_stage_waits_for_the_last_of_all_earlier_stages() -> None:
    path = find(
        a_job("build", 0, 0, 40, stage_index=0),
        a_job("quick", 0, 0, 5, stage_index=0),
        a_job("early", 5, 5, 20, stage_index=1, needs=("quick",)),
        a_job("ship", 40, 45, 50, stage_index=2, by_stage=True),
    )
    assert costs(path) == [("build", 0, 0, 40), ("ship", 0, 5, 5)]


def test_a_manual_start_is_a_cost_of_its_own() -> None:
    path = find(a_job("build", 0, 0, 10), a_job("ship", 70, 71, 80, needs=("build",)))
    assert costs(path) == [("build", 0, 0, 10), ("ship", 60, 1, 9)]


def test_a_pipeline_under_way_ends_now() -> None:
    path = find(
        a_job("build", 0, 0, 10),
        a_job("slow", 10, 20, None, needs=("build",), status="running"),
        a_job("late", 15, None, None, needs=("build",), status="pending"),
        a_job("ship", None, None, None, needs=("slow",), status="created"),
        now=100,
    )
    assert costs(path) == [("build", 0, 0, 10), ("slow", 0, 10, 80)]


def test_a_job_that_only_waited() -> None:
    assert costs(find(a_job("build", 3, None, None, status="pending"), now=10)) == [("build", 3, 7, 0)]


def test_a_cause_that_was_retried_later_is_none() -> None:
    path = find(
        a_job("build", 60, 60, 90, stage_index=0),
        a_job("other", 0, 0, 8, stage_index=0),
        a_job("ship", 10, 10, 100, stage_index=1, by_stage=True),
    )
    assert costs(path) == [("other", 0, 0, 8), ("ship", 2, 0, 90)]


def test_no_job_was_ready() -> None:
    assert find().steps == ()
    assert find(a_job("later", None, None, None, status="manual")).steps == ()


@pytest.mark.parametrize("needs", [("build",), ("test", "build")])
def test_jobs_that_need_each_other_end_the_search(needs: tuple[str, ...]) -> None:
    path = find(a_job("build", 0, 0, 0, needs=("test",)), a_job("test", 0, 0, 0, needs=needs))
    assert len(path.steps) <= 2


moments = st.floats(0, 1000, allow_nan=False)


@given(st.lists(st.tuples(moments, moments, moments, st.integers(0, 4), st.booleans()), max_size=30))
def test_the_costs_add_up_to_the_last_end(rows: list[tuple[float, float, float, int, bool]]) -> None:
    jobs = []
    for number, (*times, stage, by_stage) in enumerate(rows):
        ready, start, end = sorted(times)
        needs = () if by_stage else tuple(str(other) for other in range(number) if other % 3 == number % 3)
        jobs.append(a_job(str(number), ready, start, end, id=number, stage_index=stage, by_stage=by_stage, needs=needs))
    path = find(*jobs)
    assert path.total_seconds == pytest.approx(max((job.finished_at or 0 for job in jobs), default=0))
    assert all(min(step.held_seconds, step.waiting_seconds, step.running_seconds) >= 0 for step in path.steps)
