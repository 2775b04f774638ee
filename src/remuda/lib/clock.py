"""The interface of a clock, with a real one and one that tests control. Times are seconds since the epoch (UTC).

Use `now` for deadlines. It starts at the wall clock and then follows the machine's boot time, so a change of the wall
clock, up to a day, neither sets it back nor ends running work. Use `wall` for times that are agreed with others, such
as the expiry of a token or a schedule. See docs/decisions/0023-time.md."""

import asyncio
import heapq
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Alarm(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> object:
        """Cancel the call. No effect if it has been made already."""


class Clock(Protocol):
    """The interface of a clock: the time, and timers that a test can control."""

    def now(self) -> float:
        """Return seconds since the epoch, without the jumps that the wall clock makes."""

    def wall(self) -> float:
        """Return seconds since the epoch by the machine's wall clock."""

    def monotonic(self) -> float:
        """Return seconds that only grow; useful only for differences within this process."""

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds; returns at once for a negative number."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> "Alarm":
        """Call the callback after this many seconds; the result can cancel it. Cheaper than a waiting task."""


SLEW = 0.05
"""How fast `now` follows a changed wall clock: one minute in twenty."""
LARGEST_JUMP_SECONDS = 24 * 3600.0
"""A larger difference means that the wall clock was not set before; `now` adopts it at once."""


class Timeline:
    """Wall time without jumps: boot time plus an offset that follows the wall clock slowly. Pure."""

    def __init__(self, wall: float, boot: float) -> None:
        self._seen: tuple[float, float] = (boot, wall - boot)
        """Boot time of the last call, and the offset to boot time."""

    def now(self, wall: float, boot: float) -> float:
        """Return the time, from readings of the wall clock and the boot time. If it differs from `wall` by more than
        `LARGEST_JUMP_SECONDS`, it is set to `wall` at once; otherwise it never goes back."""
        seen_at, offset = self._seen
        difference = wall - boot - offset
        if abs(difference) > LARGEST_JUMP_SECONDS:
            offset += difference
        else:
            most = SLEW * max(boot - seen_at, 0.0)
            offset += min(max(difference, -most), most)
        # One assignment: several threads may call this at the same time.
        self._seen = (boot, offset)
        return boot + offset


def boot_time() -> float:
    return time.clock_gettime(_BOOT_CLOCK)


_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_timeline = Timeline(time.time(), boot_time())
"""Shared by the whole process, so that all its parts agree."""


class SystemClock:
    def now(self) -> float:
        return _timeline.now(time.time(), boot_time())

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        return asyncio.get_running_loop().call_later(max(seconds, 0), callback)


class VirtualClock:
    def __init__(self, start: float = 1_750_000_000.0) -> None:
        self._now = start
        self._wall_ahead = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._wall_ahead

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        await self._alarm(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        if seconds <= 0:
            return asyncio.get_running_loop().call_soon(callback)
        alarm = self._alarm(seconds)
        alarm.add_done_callback(lambda done: None if done.cancelled() else callback())
        return alarm

    def _alarm(self, seconds: float) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, future))
        return future

    async def advance(self, seconds: float) -> None:
        """Advance the clock; each sleeper wakes at its own time and runs before the next one wakes."""
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            if not future.done():
                future.set_result(None)
            await settle()
        self._now = end

    def set_wall(self, seconds: float) -> None:
        """Move the wall clock by this many seconds (negative: back); `now` does not change."""
        self._wall_ahead += seconds

    def jump(self, seconds: float) -> None:
        """Advance the time without waking sleeping tasks, like a paused process. The next `advance` wakes them late."""
        self._now += seconds


async def settle(rounds: int = 20) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


def rfc3339(seconds: float) -> str:
    """Format a time for APIs as RFC 3339: UTC, milliseconds, ending in Z."""
    return _in_utc(seconds, "milliseconds")


def stamp(seconds: float) -> str:
    """Format a time for log lines and step results: UTC, microseconds, ending in Z."""
    whole = int(seconds)
    micros = round((seconds - whole) * 1e6)
    if micros == 1_000_000 or micros < 0:
        return _in_utc(seconds, "microseconds")
    return f"{_second(whole)}.{micros:06}Z"


def parse_time(text: object) -> float | None:
    """Parse an ISO 8601 time with time zone into seconds since the epoch; None if the value is not such a text."""
    try:
        parsed = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return parsed.timestamp() if parsed.tzinfo is not None else None


def parse_shown_time(text: str) -> float:
    """Parse an ISO 8601 time (without time zone: UTC) into seconds since the epoch. Raises ValueError for another text,
    and for a time that `rfc3339` cannot format, because its year is not 1 to 9999 in UTC."""
    time = datetime.fromisoformat(text)
    try:
        seconds = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        datetime.fromtimestamp(seconds, UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None
    return seconds


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    """Format date and time to the second. Cached, because most timestamps fall into the same second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def _in_utc(seconds: float, timespec: str) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
