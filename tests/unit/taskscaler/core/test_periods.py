"""Cron lines as periods of time."""

from contextlib import suppress
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.taskscaler.core.periods import PeriodError, period, zone


def utc_time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "moment", "holds"),
    [
        ("* * * * *", "2026-07-01T03:04:05", True),
        ("* 8-18 * * mon-fri", "2026-07-01T18:59:59", True),  # a Wednesday
        ("* 8-18 * * mon-fri", "2026-07-01T19:00:00", False),
        ("* 8-18 * * mon-fri", "2026-07-04T12:00:00", False),
        ("30-59 * * * *", "2026-07-01T03:29:00", False),
        ("30-59 * * * *", "2026-07-01T03:30:00", True),
        ("* * 1,15 * *", "2026-07-15T00:00:00", True),
        ("* * * jul *", "2026-07-15T00:00:00", True),
        ("* * * jan,february *", "2026-02-15T00:00:00", True),
        ("* * * * 0", "2026-07-05T00:00:00", True),
        ("* * * * 7", "2026-07-05T00:00:00", True),
        ("* * * * 1-7", "2026-07-05T00:00:00", True),
        ("* * * * 0-7", "2026-07-03T00:00:00", True),
        ("* 0-7 * * *", "2026-07-03T09:00:00", False),
        ("* * 13 * fri", "2026-02-13T00:00:00", True),
        ("* * 13 * fri", "2026-03-06T00:00:00", False),  # a Friday, but not the 13th: both must match
        ("*/15 * * * *", "2026-07-01T03:30:00", True),
        ("*/15 * * * *", "2026-07-01T03:31:00", False),
    ],
)
def test_holds(line: str, moment: str, holds: bool) -> None:
    assert period(line).matches(utc_time(moment)) is holds


@pytest.mark.parametrize(
    ("line", "moment", "holds"),
    [
        ("* 22-6 * * *", "2026-07-01T23:00:00", True),
        ("* 22-6 * * *", "2026-07-01T06:59:00", True),
        ("* 22-6 * * *", "2026-07-01T12:00:00", False),
        ("* * * * fri-mon", "2026-07-03T12:00:00", True),
        ("* * * * fri-mon", "2026-07-05T12:00:00", True),
        ("* * * * fri-mon", "2026-07-06T12:00:00", True),
        ("* * * * fri-mon", "2026-07-07T12:00:00", False),
        ("* * * * sat-sun", "2026-07-04T12:00:00", True),
        ("* * * * sat-sun", "2026-07-03T12:00:00", False),
        ("* * * nov-feb *", "2026-01-03T12:00:00", True),
        ("* * * nov-feb *", "2026-03-03T12:00:00", False),
    ],
)
def test_wrapped_period(line: str, moment: str, holds: bool) -> None:
    """Ranges may wrap: `22-6` is the night and `fri-mon` the long weekend."""
    assert period(line).matches(utc_time(moment)) is holds


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        ("8-18/5", {8, 13, 18}),
        ("9/2", {9, 11, 13, 15, 17, 19, 21, 23}),
        ("20-4/3", {20, 23, 2}),
        ("*/6", {0, 6, 12, 18}),
    ],
)
def test_steps_count_from_the_start_of_the_range(hours: str, expected: set[int]) -> None:
    assert period(f"* {hours} * * *").hours == expected


@pytest.mark.parametrize(
    ("line", "moment", "holds"),
    [
        ("* * 9-17 * * mon-fri *", "2026-07-01T17:30:00", True),
        ("* * 9-17 * * mon-fri *", "2026-07-04T17:30:00", False),
        ("* * * * * * 2027", "2026-07-04T17:30:00", False),
        ("0-29 * * * * * *", "2026-07-04T17:30:31", False),
        ("* * * 13 * fri *", "2026-03-06T00:00:00", True),  # either of the two, as Docker Machine sections have it
        ("* * * 13 * ? *", "2026-03-06T00:00:00", False),
        ("* 9-17 * * mon-fri 2026", "2026-07-01T17:30:00", True),
        ("* 9-17 * * mon-fri", "2026-07-01T17:30:59", True),
    ],
)
def test_docker_machine_sections_have_seconds_and_years(line: str, moment: str, holds: bool) -> None:
    assert period(line, machine=True).matches(utc_time(moment)) is holds


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("* * * *", "has 4 fields"),
        ("* * * * * *", "has 6 fields"),
        ("", "has 0 fields"),
        ("60 * * * *", "'60' in the period '60 * * * *' is no minute; write 0 to 59"),
        ("* * 0 * *", "write 1 to 31"),
        ("* * * * fry", "write 0 to 6 or sun to sat"),
        ("* * * ja *", "write 1 to 12 or jan to dec"),
        ("*/0 * * * *", "is no minute"),
        ("1,,2 * * * *", "is no minute"),
        ("*-5 * * * *", "is no minute"),
        ("-5 * * * *", "is no minute"),
        ("5- * * * *", "is no minute"),
        ("x * * * *", "is no minute"),
    ],
)
def test_mistakes_say_what_to_write(line: str, message: str) -> None:
    with pytest.raises(PeriodError, match=message.replace("*", r"\*")):
        period(line)


def test_a_year_range_does_not_wrap() -> None:
    with pytest.raises(PeriodError, match="is no year"):
        period("* * * * * 2027-2026", machine=True)


@pytest.mark.parametrize(
    ("line", "is_never"),
    [
        ("* * * * *", False),
        ("* * 31 2 *", True),
        ("* * 31 4,6,9,11 *", True),
        ("* * 30,31 2-3 *", False),
        ("* * 29 2 *", False),
        ("* * 29 2 mon", False),
        ("* * 29 2 * 2027", True),
        ("* * 29 2 mon 2028", False),  # one of the two days is enough here
        ("* * 29 2 * 2028", False),
    ],
)
def test_never(line: str, is_never: bool) -> None:
    assert period(line, machine=True).is_never is is_never


def test_time_zones() -> None:
    assert zone("") is UTC
    assert zone("Local", ZoneInfo("Asia/Tokyo")) == ZoneInfo("Asia/Tokyo")
    assert zone("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    for name in ("Mars/Phobos", "../etc/passwd", "Europe"):
        with pytest.raises(PeriodError, match="there is no time zone"):
            zone(name)


@given(st.text(max_size=40))
def test_any_text_is_a_period_or_an_explained_mistake(text: str) -> None:
    with suppress(PeriodError):
        period(text, machine=True).matches(utc_time("2026-07-01T00:00:00"))


@given(st.integers(0, 23), st.integers(0, 23))
def test_a_range_and_its_complement_are_the_whole_day(first: int, last: int) -> None:
    hours = period(f"* {first}-{last} * * *").hours
    other_hours = period(f"* {(last + 1) % 24}-{(first - 1) % 24} * * *").hours
    if (last + 1) % 24 == first:
        assert hours == other_hours == frozenset(range(24))
    else:
        assert hours | other_hours == frozenset(range(24))
        assert not hours & other_hours
