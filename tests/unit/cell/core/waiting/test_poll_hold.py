"""How long a request for a job is held."""

from pathlib import Path

import pytest

from remuda.cell.core.waiting.poll_hold import hold_seconds
from remuda.cell.settings import CellSettings
from remuda.testing.builders import a_runner
from remuda.wire.runner_api import RequestJob


@pytest.mark.parametrize(
    ("announced", "of_runner", "others", "expected"),
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
def test_by_what_the_manager_says_and_what_is_set(
    announced: float | None, of_runner: int | None, others: float, expected: float
) -> None:
    settings = CellSettings(data=Path("unused"), other_poll_hold_seconds=others)
    runner = a_runner(poll_hold_seconds=of_runner)
    assert hold_seconds(RequestJob(last_update="x", hold_seconds=announced), runner, settings) == expected
    assert hold_seconds(RequestJob(hold_seconds=announced), runner, settings) == 0, "one without a cursor never waits"
