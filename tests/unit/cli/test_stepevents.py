from typing import Any

import pytest

from remuda.cli.stepevents import StepView, duration, fold, moment

NOW = 1_750_000_000.0


def event(kind: str, name: str, time: str = "2025-06-15T15:06:40.000Z", **more: Any) -> dict[str, Any]:
    return {"version": 1, "event": kind, "path": f"/{name}", "name": name, "time": time, **more}


def test_a_step_is_running_until_its_end_is_told() -> None:
    assert fold([event("started", "step_script")]) == (StepView(name="script", status="running", started_at=NOW),)


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
    assert fold([event("started", "get_sources"), end]) == (
        StepView(name="get_sources", status="failure", started_at=NOW, finished_at=NOW + 2.5, exit_code=3),
    )


def test_a_skipped_step_has_no_beginning() -> None:
    (step,) = fold([event("finished", "upload_artifacts", status="skipped", exit_code=None)])
    assert (step.status, step.seconds(NOW)) == ("skipped", None)


def test_what_is_not_known_is_passed_over() -> None:
    assert fold([{"version": 9, "event": "usage", "cpu": 1}]) == ()


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
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_moments() -> None:
    assert moment("2025-06-15T15:06:40.000Z") == NOW
    assert moment(None) is None
