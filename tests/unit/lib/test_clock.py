import asyncio
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.clock import SystemClock, VirtualClock, parse_shown_time, rfc3339, settle, stamp


async def test_virtual_time_changes_only_with_advance() -> None:
    clock = VirtualClock(start=100)
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(clock.sleep(5))
        await clock.advance(4.9)
        assert not sleeper.done()
        assert clock.now() == clock.monotonic() == pytest.approx(104.9)
        await clock.advance(0.2)
        assert sleeper.done()
    assert clock.now() == pytest.approx(105.1)


async def test_sleepers_wake_at_their_deadlines_in_order() -> None:
    clock = VirtualClock(start=0)
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, *seconds: float) -> None:
        for duration in seconds:
            await clock.sleep(duration)
            woken.append((name, clock.now()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleep("late", 3))
        group.create_task(sleep("twice", 1, 1))
        group.create_task(sleep("same", 3))
        await clock.advance(10)
    assert woken == [("twice", 1), ("twice", 2), ("late", 3), ("same", 3)]
    assert clock.now() == 10


async def test_a_cancelled_sleeper_does_not_disturb_the_others() -> None:
    clock = VirtualClock()
    async with asyncio.TaskGroup() as group:
        cancelled = group.create_task(clock.sleep(1))
        other = group.create_task(clock.sleep(1))
        await settle()
        cancelled.cancel()
        await clock.advance(1)
        assert other.done()


async def test_a_sleep_of_zero_or_less_returns_at_once() -> None:
    clock = VirtualClock()
    await clock.sleep(0)
    await clock.sleep(-1)


async def test_system_clock() -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 5
    before = clock.monotonic()
    await clock.sleep(-1)
    assert clock.monotonic() >= before


def test_formats_of_timestamps() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_750_000_000.1239) == "2025-06-15T15:06:40.123Z"
    assert stamp(1_750_000_000.0) == "2025-06-15T15:06:40.000000Z"
    assert stamp(0.000001) == "1970-01-01T00:00:00.000001Z"


@given(st.floats(min_value=0, max_value=4e9))
def test_a_stamp_equals_the_iso_format_of_datetime(seconds: float) -> None:
    assert stamp(seconds) == datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:26] + "Z"


@pytest.mark.parametrize(
    "text",
    ["9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00", "10000-01-01", "x"],
)
def test_a_time_that_cannot_be_shown_is_not_parsed(text: str) -> None:
    with pytest.raises(ValueError, match=r"year|format|range"):
        parse_shown_time(text)


def test_a_shown_time_is_in_utc_without_a_zone() -> None:
    assert rfc3339(parse_shown_time("9999-12-31T23:59:59")) == "9999-12-31T23:59:59.000Z"
    assert rfc3339(parse_shown_time("2026-01-31T08:00:00+02:00")) == "2026-01-31T06:00:00.000Z"
