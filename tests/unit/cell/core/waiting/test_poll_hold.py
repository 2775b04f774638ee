"""How long a job request is held."""

from pathlib import Path

import pytest

from remuda.cell.core.waiting.poll_hold import hold_seconds
from remuda.cell.settings import CellSettings
from remuda.testing.builders import a_runner
from remuda.wire.runner_api import RequestJob


@pytest.mark.parametrize(
    ("announced", "runner_setting", "other_managers", "expected"),
    [
        (240, None, 0, 50),  # Remuda's own manager
        (20, None, 0, 20),
        (-5, None, 0, 0),
        (240, 10, 0, 10),
        (240, 100, 0, 50),
        (240, 0, 0, 0),
        (None, None, 0, 0),  # gitlab-runner
        (None, None, 5, 5),
        (None, None, 500, 50),
        (None, 30, 0, 30),
        (None, 0, 5, 0),
    ],
)
def test_hold_by_request_runner_and_settings(
    announced: float | None, runner_setting: int | None, other_managers: float, expected: float
) -> None:
    settings = CellSettings(data=Path("unused"), other_poll_hold_seconds=other_managers)
    runner = a_runner(poll_hold_seconds=runner_setting)
    assert hold_seconds(RequestJob(last_update="x", hold_seconds=announced), runner, settings) == expected
    assert hold_seconds(RequestJob(hold_seconds=announced), runner, settings) == 0, (
        "a request without a cursor is never held"
    )
