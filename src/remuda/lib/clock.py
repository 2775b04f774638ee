"""Time comes in through this port, so that every wait can be tested without waiting.

`SystemClock` is the real one. `VirtualClock` stands still until a test advances it; sleepers wake in the order
of their deadlines. Times are in seconds since the epoch (UTC), because they are stored and sent; monotonic time
is only compared with itself.

`now` is what deadlines are made of and compared with: it begins as the wall clock and then runs with the machine's boot
time, so a wall clock that is set anew ends nothing that runs, and it never goes back. `wall` is the wall clock as it
is, for what is agreed with others: when a token expires, when a schedule is due. See docs/decisions/0023-time.md.
"""

import asyncio
import heapq
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Alarm(Protocol):
    """A call that is to come."""

    def cancel(self) -> object:
        """It shall not come; without effect when it has."""
        ...


class Clock(Protocol):
    """What a shell needs to know about time."""

    def now(self) -> float:
        """Seconds since the epoch, without the jumps of the wall clock."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch as the machine's wall clock has them now."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment of this process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that long; negative means not at all."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> "Alarm":
        """Call that after so long, unless it is cancelled before: for thousands who wait, without a task for each."""
        ...


SLEW = 0.05
"""How fast `now` catches up with a wall clock that was set: a minute in twenty."""
LARGEST_JUMP_SECONDS = 24 * 3600.0
"""A wall clock that is further away was never set before; it is taken over at once."""


class Timeline:
    """Wall time without jumps: boot time, with a difference that follows the wall clock slowly.

    Pure: both clocks come in as arguments.
    """

    def __init__(self, wall: float, boot: float) -> None:
        self._seen: tuple[float, float] = (boot, wall - boot)
        """When it was last asked, and what it adds to boot time."""

    def now(self, wall: float, boot: float) -> float:
        """The time at this moment; never before one that was given out, except where the wall clock is taken over."""
        seen_at, offset = self._seen
        difference = wall - boot - offset
        if abs(difference) > LARGEST_JUMP_SECONDS:
            offset += difference
        else:
            most = SLEW * max(boot - seen_at, 0.0)
            offset += min(max(difference, -most), most)
        # One assignment: several threads may ask at the same time.
        self._seen = (boot, offset)
        return boot + offset


def boot_time() -> float:
    """Seconds since the machine started, with those for which it slept where the kernel counts them."""
    return time.clock_gettime(_BOOT_CLOCK)


_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_timeline = Timeline(time.time(), boot_time())
"""One for the whole process, so that all its parts agree."""


class SystemClock:
    """The machine's clock."""

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
    """A clock that moves only when told to."""

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
        """Move on, waking each sleeper at its own moment and letting it run before the next one wakes."""
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not future.done():
                future.set_result(None)
            await settle()
        self._now = end

    def set_wall(self, seconds: float) -> None:
        """Let the wall clock jump by that much; nothing else moves."""
        self._wall_ahead += seconds

    def jump(self, seconds: float) -> None:
        """Move on without waking anybody, as for a process that was stopped; sleepers wake late, by `advance`."""
        self._now += seconds


async def settle(rounds: int = 20) -> None:
    """Give every ready task a turn; enough rounds for a chain of awaits that does no real I/O."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def rfc3339(seconds: float) -> str:
    """The way times are written on the wire: UTC, milliseconds, Z."""
    return _in_utc(seconds, "milliseconds")


def stamp(seconds: float) -> str:
    """The way log lines and step results are stamped: UTC, microseconds, Z."""
    whole = int(seconds)
    micros = round((seconds - whole) * 1e6)
    if micros == 1_000_000 or micros < 0:
        return _in_utc(seconds, "microseconds")
    return f"{_second(whole)}.{micros:06}Z"


def moment(text: object) -> float | None:
    """The seconds that such a text stands for; None when it is none, or does not say where on earth."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None else None


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    """Most stamps are of a second that was just asked for."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def _in_utc(seconds: float, timespec: str) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
