"""Bars of time of a pipeline's jobs."""

import pytest

from remuda.cell.web.pipelines.time_bars import MOST_TICKS, lay_out_times
from remuda.wire.user_api import JobProgress


def a_job(name: str, ready: float | None, start: float | None, end: float | None) -> JobProgress:
    return JobProgress(
        id=1, name=name, stage="s", status="x", created_at=100.0, pending_at=ready, started_at=start, finished_at=end
    )


def test_bars_of_each_phase() -> None:
    chart = lay_out_times(
        [a_job("later", None, None, None), a_job("b", 150, 160, 200), a_job("a", 100, 100, 150)],
        created_at=100.0,
        finished_at=200.0,
        now=900.0,
    )
    assert [row.job.name for row in chart.rows] == ["a", "b", "later"]
    assert [(bar.phase, bar.start, bar.width) for bar in chart.rows[0].bars] == [("running", 0, 50)]
    assert [(bar.phase, bar.start, bar.width) for bar in chart.rows[1].bars] == [
        ("blocked", 0, 50),
        ("waiting", 50, 10),
        ("running", 60, 40),
    ]
    assert chart.rows[2].bars == ()
    assert chart.seconds == 100
    assert chart.ticks[:2] == ((0, 0), (15, 15))


def test_running_jobs_end_now() -> None:
    chart = lay_out_times([a_job("a", 100, 110, None)], created_at=100.0, finished_at=None, now=150.0)
    assert [(bar.phase, bar.seconds) for bar in chart.rows[0].bars] == [("waiting", 10), ("running", 40)]


@pytest.mark.parametrize("seconds", [0, 1, 59, 3600, 10**6, 10**8])
def test_few_ticks_on_the_axis(seconds: int) -> None:
    chart = lay_out_times([a_job("a", 100, 100, 100.0 + seconds)], created_at=100.0, finished_at=None, now=0.0)
    assert 1 <= len(chart.ticks) <= MOST_TICKS + 1
    assert all(0 <= place <= 100 for place, _ in chart.ticks)
