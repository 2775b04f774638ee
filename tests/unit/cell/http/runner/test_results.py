"""Durations of steps, computed from the results that the agent reports."""

from typing import Any

import pytest

from remuda.cell.http.runner.results import step_times


def a_result(**more: Any) -> dict[str, Any]:
    return {
        "event": "finished",
        "path": "/script",
        "name": "script",
        "status": "success",
        "started_at": "2026-01-01T00:00:00Z",
        "finished_at": "2026-01-01T00:00:02.25Z",
    } | more


def test_finished_steps_have_durations() -> None:
    inner = a_result(path="/box/after_script", name="after_script", status="failure")
    results = [a_result(event="started"), a_result(), inner]
    assert step_times(results) == [
        {"path": "/script", "name": "script", "status": "success", "seconds": 2.25},
        {"path": "/box/after_script", "name": "after_script", "status": "failure", "seconds": 2.25},
    ]


@pytest.mark.parametrize(
    "started_at", [None, "yesterday", 5, {}, "2026-01-01T00:00:00"], ids=["none", "word", "number", "map", "no zone"]
)
def test_invalid_times_give_no_duration(started_at: object) -> None:
    assert step_times([a_result(started_at=started_at)])[0]["seconds"] is None


def test_results_of_another_shape_are_ignored() -> None:
    assert step_times(["text", 5, None, {}]) == []
