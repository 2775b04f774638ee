"""When the time of a job in the queue is too long."""

from datetime import UTC, datetime

import pytest

from remuda.manager.config.values import QueuingDuration
from remuda.manager.core.queue_duration import is_too_long

SUNDAY_NOON = datetime(2026, 11, 15, 12, 30, 20, tzinfo=UTC)


def entry(
    threshold: str = "60s", periods: str = "* * * * *", timezone: str = "UTC", *, running: str = ""
) -> QueuingDuration:
    return QueuingDuration(threshold=threshold, periods=(periods,), timezone=timezone, jobs_running_for_project=running)


def too_long(*entries: QueuingDuration, queued: float = 61.0, running: str = "0") -> bool:
    return is_too_long(entries, now=SUNDAY_NOON, queued_seconds=queued, project_jobs_running=running)


def test_without_an_entry_no_wait_is_too_long() -> None:
    assert not too_long(queued=1e6)


def test_a_wait_above_the_threshold_is_too_long() -> None:
    assert too_long(entry())
    assert not too_long(entry(), queued=60.0)
    assert not too_long(entry(threshold=""), queued=1e6)


def test_the_last_entry_that_matches_counts() -> None:
    assert not too_long(entry("60s"), entry("2h"))
    assert too_long(entry("2h"), entry("60s"), entry("2h", periods="* * * * mon-fri"))


@pytest.mark.parametrize(
    ("periods", "timezone", "expected"),
    [
        ("* 12 * * *", "UTC", True),
        ("30 * * * *", "UTC", True),
        ("31 * * * *", "UTC", False),
        ("* 8-17 * * mon-fri", "UTC", False),
        ("* 12 * * *", "Asia/Tokyo", False),
        ("* 21 * * sun", "Asia/Tokyo", True),
        ("rubbish", "UTC", False),
        ("* * * * *", "Nowhere/Land", False),
    ],
)
def test_the_time_has_to_match(periods: str, timezone: str, expected: bool) -> None:
    assert too_long(entry(periods=periods, timezone=timezone)) is expected


def test_the_projects_running_jobs_have_to_match() -> None:
    assert too_long(entry(running="^[0-4]$"), running="3")
    assert not too_long(entry(running="^[0-4]$"), running="5+")
    assert not too_long(entry(running="("), running="3")
