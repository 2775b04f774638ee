"""Cron times of schedules in time zones, and the changes that a run makes to its schedule."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.cell.core.pipelines.schedules import (
    CronError,
    TimezoneError,
    next_time,
    with_next_time,
    with_pipeline,
    without_pipeline,
)
from remuda.cell.errors import InvalidError
from remuda.cell.values import Schedule
from remuda.model.job import PipelineId, ProjectId
from remuda.testing.builders import NOW


def a_schedule(**changes: object) -> Schedule:
    values: dict[str, object] = {
        "id": 1,
        "project_id": ProjectId(1),
        "description": "nightly",
        "ref": "main",
        "cron": "0 4 * * *",
        "created_at": NOW,
        "updated_at": NOW,
        "next_run_at": NOW,
    }
    return Schedule(**(values | changes))  # type: ignore[arg-type]


def next_local_times(moment: str, cron: str, timezone: str = "UTC", runs: int = 1) -> list[str]:
    """Return the next runs of a schedule after a local time."""
    zone = ZoneInfo(timezone)
    time, times = datetime.fromisoformat(moment).replace(tzinfo=zone).timestamp(), []
    for _ in range(runs):
        time = next_time(cron, timezone, time)
        times.append(datetime.fromtimestamp(time, zone).strftime("%m-%d %H:%M %Z"))
    return times


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 4 * * *", "01-16 04:00 UTC"),
        ("*/15 * * * *", "01-15 09:00 UTC"),
        ("@daily", "01-16 00:00 UTC"),
        (" @Hourly ", "01-15 09:00 UTC"),
        ("@weekly", "01-18 00:00 UTC"),
        ("@monthly", "02-01 00:00 UTC"),
        ("@yearly", "01-01 00:00 UTC"),
        ("0 9 * * mon-fri", "01-15 09:00 UTC"),
        ("0 9 * feb Tue", "02-03 09:00 UTC"),
        ("30 6 1,15 * *", "02-01 06:30 UTC"),
        ("0 0 L * *", "01-31 00:00 UTC"),
        ("0 0 29 2 *", "02-29 00:00 UTC"),
    ],
)
def test_next_time_of_cron_lines(cron: str, expected: str) -> None:
    # This day is a Thursday.
    assert next_local_times("2026-01-15T08:59", cron) == [expected]


def test_the_time_zone_of_the_schedule_applies() -> None:
    assert next_time("0 4 * * *", "Asia/Tokyo", NOW) - next_time("0 4 * * *", "UTC", NOW) in (-9 * 3600, 15 * 3600)


def test_a_time_in_the_dst_gap_runs_at_its_end() -> None:
    # On 29 March 2026 Berlin goes from 02:00 to 03:00.
    assert next_local_times("2026-03-28T12:00", "30 2 * * *", "Europe/Berlin", 2) == [
        "03-29 03:00 CEST",
        "03-30 02:30 CEST",
    ]
    assert next_local_times("2026-03-29T01:00", "*/30 * * * *", "Europe/Berlin", 3) == [
        "03-29 01:30 CET",
        "03-29 03:00 CEST",
        "03-29 03:30 CEST",
    ]


def test_a_time_that_occurs_twice_at_the_end_of_dst() -> None:
    # On 25 October 2026 Berlin has the hour from 02:00 to 03:00 twice.
    assert next_local_times("2026-10-24T12:00", "30 2 * * *", "Europe/Berlin", 2) == [
        "10-25 02:30 CEST",
        "10-26 02:30 CET",
    ]
    assert next_local_times("2026-10-25T01:30", "0 * * * *", "Europe/Berlin", 3) == [
        "10-25 02:00 CEST",
        "10-25 02:00 CET",
        "10-25 03:00 CET",
    ]


@pytest.mark.parametrize(
    ("cron", "reason"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("*/10 * * * * *", "6 fields"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * foo *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 31 2 1#5,1#4/x", "bad day-of-week"),
        ("0 0 * * " + "1," * 200 + "1", "more than 255"),
        ("@fortnightly", "1 fields"),
    ],
)
def test_error_messages_for_invalid_cron_lines(cron: str, reason: str) -> None:
    with pytest.raises(CronError, match=reason) as refused:
        next_time(cron, "UTC", NOW)
    assert "for example" in str(refused.value)


@pytest.mark.parametrize("timezone", ["", "Mars", "../etc/passwd", "Europe/Berlin\0", "europe", "x" * 5000])
def test_error_messages_for_invalid_time_zones(timezone: str) -> None:
    with pytest.raises(TimezoneError, match="such as UTC or Europe/Berlin"):
        next_time("0 4 * * *", timezone, NOW)


_FIELD = st.text("0123456789*/,-#LWmontuejan", min_size=1, max_size=6)


@given(
    st.one_of(st.text(max_size=40), st.lists(_FIELD, min_size=5, max_size=5).map(" ".join)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"]),
    st.floats(1.6e9, 2.2e9),
)
def test_any_text_gives_a_later_whole_minute_or_an_error(cron: str, timezone: str, moment: float) -> None:
    try:
        time = next_time(cron, timezone, moment)
    except InvalidError:
        return
    assert time > moment
    assert datetime.fromtimestamp(time, UTC).second == 0


def test_a_run_sets_the_next_time_and_resets_the_error() -> None:
    schedule = a_schedule(last_error="no file")
    ran = replace(schedule, next_run_at=NOW + 60)
    assert with_pipeline(schedule, ran, PipelineId(7)) == a_schedule(next_run_at=NOW + 60, last_pipeline_id=7)


def test_a_run_does_not_overwrite_concurrent_changes() -> None:
    ran = a_schedule(next_run_at=NOW + 60)
    described = a_schedule(description="at night", updated_at=NOW + 1)
    assert with_pipeline(described, ran, PipelineId(7)).next_run_at == NOW + 60
    moved = with_next_time(a_schedule(cron="0 5 * * *"), NOW)
    assert with_pipeline(moved, ran, PipelineId(7)) == replace(moved, last_pipeline_id=PipelineId(7))


def test_a_manual_run_does_not_restore_an_older_time() -> None:
    manual_run = a_schedule(next_run_at=NOW)
    assert with_pipeline(a_schedule(next_run_at=NOW + 60), manual_run, PipelineId(8)).next_run_at == NOW + 60


def test_a_failed_run_stores_its_reason_unless_it_started_a_pipeline() -> None:
    due = a_schedule()
    assert without_pipeline(due, due, next_at=NOW + 60, reason="no jobs") == a_schedule(
        next_run_at=NOW + 60, last_error="no jobs"
    )
    assert without_pipeline(a_schedule(next_run_at=NOW + 60), due, next_at=NOW + 60, reason="late") is None
