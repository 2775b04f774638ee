"""Statuses of checks that other systems run."""

from typing import Any

import pytest
from msgspec.structs import replace

from remuda.cell.core.jobs import external_statuses, lifecycle
from remuda.cell.core.jobs.external_statuses import MAX_STATUSES, StatusReport, TooManyStatusesError
from remuda.cell.errors import InvalidError
from remuda.cell.values import Family, Pipeline
from remuda.model.job import JobId, JobState
from remuda.testing.builders import NOW, a_family, a_job


def report(family: Family, state: str, *, number: int = 10, at: float = 0, **more: Any) -> Family:
    values: dict[str, Any] = {"name": "ci/x", "state": JobState(state), "user_id": 1}
    changes = external_statuses.report(family, StatusReport(**(values | more)), JobId(number), NOW + at)
    assert changes.jobs == ()
    return replace(family, pipeline=changes.pipeline or family.pipeline)


def statuses(pipeline: Pipeline) -> list[tuple[int, str, str, bool]]:
    return [(row.id, row.name, row.state.value, row.retried) for row in pipeline.external]


def test_a_check_from_pending_to_its_end() -> None:
    family = report(a_family([]), "pending", target_url="https://x", description="waits")
    assert (family.pipeline.status, statuses(family.pipeline)) == ("pending", [(10, "ci/x", "pending", False)])
    family = report(family, "running", number=11, at=1)
    assert (family.pipeline.status, family.pipeline.started_at) == ("running", NOW + 1)
    again = report(family, "running", number=12, at=1)  # the same message again
    assert statuses(again.pipeline) == statuses(family.pipeline)
    family = report(family, "success", number=13, at=2, description="fine", coverage=81.5)
    [status] = family.pipeline.external
    assert (status.target_url, status.description, status.coverage) == ("https://x", "fine", 81.5)
    assert (status.started_at, status.finished_at) == (NOW + 1, NOW + 2)
    assert (family.pipeline.status, family.pipeline.finished_at) == ("success", NOW + 2)


def test_a_check_that_ended_begins_anew() -> None:
    family = report(report(a_family([]), "failed"), "running", number=11)
    assert statuses(family.pipeline) == [(10, "ci/x", "failed", True), (11, "ci/x", "running", False)]
    assert (family.pipeline.status, family.pipeline.finished_at) == ("running", None)


def test_statuses_count_like_jobs() -> None:
    passed = a_family([a_job(state=JobState.SUCCESS)], status="success")
    assert report(passed, "failed").pipeline.status == "failed"
    assert report(passed, "running").pipeline.status == "running"
    assert report(passed, "skipped").pipeline.status == "success"
    assert report(report(passed, "failed", name="a"), "success", name="b").pipeline.status == "failed"
    running = a_family([a_job(state=JobState.RUNNING)], status="running")
    assert report(running, "success").pipeline.status == "running"


def test_a_cancel_of_the_pipeline_cancels_open_statuses() -> None:
    family = report(report(a_family([]), "running", name="a"), "success", name="b", number=11)
    changes = lifecycle.cancel_all(family, NOW + 5)
    assert changes.pipeline is not None
    assert changes.pipeline.status == "canceled"
    assert [row.state.value for row in changes.pipeline.external] == ["canceled", "success"]


def test_what_is_refused() -> None:
    family = report(a_family([]), "running")
    with pytest.raises(InvalidError, match="Cannot transition status via :enqueue from :running"):
        report(family, "pending")
    for number in range(1, MAX_STATUSES):
        family = report(family, "success", name=f"n{number}", number=10 + number)
    with pytest.raises(TooManyStatusesError):
        report(family, "success", name="one more")
    assert report(family, "success").pipeline.external[0].state is JobState.SUCCESS
