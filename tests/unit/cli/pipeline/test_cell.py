from typing import Any

import pytest

from remuda.cli.pipeline.cell import seconds_run


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ({"started_at": "2026-01-02T03:04:05.100Z", "finished_at": "2026-01-02T03:04:05.800Z", "duration": 0}, 0.7),
        ({"started_at": "2026-01-02T03:04:05.100Z", "finished_at": None, "duration": 12}, 12),
        ({"started_at": None, "finished_at": "2026-01-02T03:04:05.800Z", "duration": None}, None),
    ],
)
def test_the_time_of_a_pipeline_has_parts_of_a_second_once_it_has_ended(
    times: dict[str, Any], seconds: float | None
) -> None:
    assert seconds_run(times) == (None if seconds is None else pytest.approx(seconds))
