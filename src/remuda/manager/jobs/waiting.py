"""How a job waits: until an event or a moment, or beside long work; and why it waits (`Hindrance`)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from remuda.lib.clock import Clock

T = TypeVar("T")


class Bell:
    """Wakes the loop of one job. Code that has an event for the job calls `ring`. `name` is part of the names of the
    job's tasks."""

    __slots__ = ("_clock", "_rung", "name")

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._rung = asyncio.Event()
        self.name = name

    def ring(self) -> None:
        self._rung.set()

    def clear(self) -> None:
        self._rung.clear()

    async def until(self, moment: float) -> None:
        """Wait until it rings, or until this moment of the monotonic clock."""
        if self._rung.is_set():
            return
        alarm = self._clock.call_later(moment - self._clock.monotonic(), self.ring)
        try:
            await self._rung.wait()
        finally:
            alarm.cancel()


class Hindrance:
    """Why a job waits for its machine or agent."""

    __slots__ = ("_last", "cause")

    def __init__(self) -> None:
        self.cause = ""
        """Empty: it does not wait."""
        self._last = ""

    def is_new(self, cause: str) -> bool:
        """Set the cause. True if it differs from the last one, even if that ended meanwhile: then it is logged."""
        last, self._last, self.cause = self._last, cause, cause
        return cause != last

    def clear(self) -> None:
        self.cause = ""


async def run_beside(work: Awaitable[T], turn: Callable[[], Awaitable[bool]], bell: Bell) -> T | None:
    """Await the work while calling `turn` again and again. Rings the bell when the work ends.

    None: a turn returned False, and the work was cancelled.
    """
    result: T | None = None
    failure: Exception | None = None

    async def attempt() -> None:
        nonlocal result, failure
        try:
            result = await work
        except Exception as error:  # noqa: BLE001 - it is raised below, outside the group
            failure = error
        finally:
            bell.ring()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(attempt(), name=f"place of {bell.name}")
        while not task.done() and await turn():
            pass
        task.cancel()
    if failure is not None:
        raise failure
    return result
