"""Helpers with which a job waits: for an event or a time (`Bell`), or for long work (`run_beside`)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from remuda.lib.clock import Clock

T = TypeVar("T")


class Bell:
    """Wakes the loop of one job: code with an event for the job calls `ring`. `name` is used for asyncio tasks."""

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
        """Wait until `ring` is called, or until the monotonic clock reaches `moment`."""
        if self._rung.is_set():
            return
        alarm = self._clock.call_later(moment - self._clock.monotonic(), self.ring)
        try:
            await self._rung.wait()
        finally:
            alarm.cancel()


class Hindrance:
    """Why a job waits for its machine or agent, and whether that was already logged."""

    __slots__ = ("_last", "cause")

    def __init__(self) -> None:
        self.cause = ""
        """The current cause; empty: the job does not wait."""
        self._last = ""

    def is_new(self, cause: str) -> bool:
        """Set why the job waits. True if the last call, even one before a `clear`, had another cause."""
        last, self._last, self.cause = self._last, cause, cause
        return cause != last

    def clear(self) -> None:
        self.cause = ""


async def run_beside(work: Awaitable[T], turn: Callable[[], Awaitable[bool]], bell: Bell) -> T | None:
    """Await `work` and return its result or raise its error. Meanwhile `turn` is called again and again; if it returns
    False, the work is cancelled and None is returned. `bell` rings when the work ends, so that a `turn` that waits for
    the bell returns."""
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
