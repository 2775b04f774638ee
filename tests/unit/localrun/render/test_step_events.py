from typing import Any

import pytest

from remuda.lib.clock import parse_time, stamp
from remuda.localrun.render.step_events import StepView, fold
from remuda.localrun.render.words import duration

NOW = 1_750_000_000.0


def event(kind: str, name: str, time: str = "2025-06-15T15:06:40.000Z", **more: Any) -> dict[str, Any]:
    return {"version": 1, "event": kind, "path": f"/{name}", "name": name, "time": time} | more


def test_a_step_without_a_finished_event_is_running() -> None:
    view = StepView(name="script", path="/step_script", status="running", started_at=NOW)
    assert fold([event("started", "step_script")], NOW) == (view,)


def test_the_end_has_both_times() -> None:
    end = event(
        "finished",
        "get_sources",
        "2025-06-15T15:06:43.000Z",
        status="failure",
        exit_code=3,
        started_at="2025-06-15T15:06:40.000Z",
        finished_at="2025-06-15T15:06:42.500Z",
    )
    times: dict[str, Any] = {"started_at": NOW, "finished_at": NOW + 2.5}
    assert fold([event("started", "get_sources"), end], NOW) == (
        StepView(name="get_sources", path="/get_sources", status="failure", exit_code=3, **times),
    )


def time_at(seconds: float) -> str:
    return stamp(NOW + seconds)


def test_nested_steps_follow_their_parent_and_time_counts_once() -> None:
    inner = {"started_at": time_at(1), "finished_at": time_at(9), "status": "success"}
    views = fold(
        [
            event("started", "container", time_at(0)),
            event("finished", "+open", path="/container/+open", started_at=time_at(0), finished_at=time_at(1)),
            event("started", "step_script", time_at(1), path="/container/step_script"),
            event("finished", "step_script", path="/container/step_script", **inner),
            event("finished", "container", started_at=time_at(0), finished_at=time_at(10)),
        ],
        NOW,
    )
    assert [(view.name, view.depth, view.own_seconds) for view in views] == [
        ("container", 0, pytest.approx(1)),
        ("container open", 1, None),
        ("script", 1, None),
    ]


def test_earlier_attempts_count_for_the_time_of_a_step() -> None:
    (view,) = fold(
        [
            event(
                "finished",
                "a",
                started_at=time_at(0),
                finished_at=time_at(3),
                status="failure",
                retried=True,
                attempt=1,
            ),
            event("finished", "a", started_at=time_at(5), finished_at=time_at(7), attempt=2),
        ],
        NOW,
    )
    assert (view.status, view.seconds(NOW)) == ("success", 2)
    assert view.own_seconds == pytest.approx(5)


def test_a_skipped_step_has_no_duration() -> None:
    (step,) = fold([event("finished", "upload_artifacts", status="skipped", exit_code=None)], NOW)
    assert (step.status, step.seconds(NOW)) == ("skipped", None)


def test_unknown_events_are_ignored() -> None:
    assert fold([{"version": 9, "event": "usage", "cpu": 1}], NOW) == ()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (1.24, "1.2s"),
        (59.9, "59.9s"),
        (59.96, "1m 00s"),
        (123.4, "2m 03s"),
        (3599.7, "1h 00m"),
        (7500, "2h 05m"),
    ],
)
def test_duration_formats(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_parse_time() -> None:
    assert parse_time("2025-06-15T15:06:40.000Z") == NOW
    assert parse_time(None) is None
