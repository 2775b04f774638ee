"""Time comes in through this port, so that every wait can be tested without waiting.

`SystemClock` is the real one. `VirtualClock` stands still until a test advances it; sleepers wake in the order
of their deadlines. Wall time is in seconds since the epoch (UTC), because it is stored and sent; monotonic time
is only compared with itself.
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
        """Seconds since the epoch."""
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


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
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
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

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
