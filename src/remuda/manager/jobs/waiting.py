"""How a job waits: until something happens to it or a moment has come, and beside work that takes long; and why.

Whoever has something for a job rings its `Bell`. What is to be done then is the job's own decision, see `jobs.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from remuda.lib.clock import Clock

T = TypeVar("T")


class Bell:
    """Of one job, which is `name` among the tasks."""

    __slots__ = ("_clock", "_rung", "name")

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._rung = asyncio.Event()
        self.name = name

    def ring(self) -> None:
        """Something happened."""
        self._rung.set()

    def clear(self) -> None:
        """What happened until now has been seen."""
        self._rung.clear()

    async def until(self, moment: float) -> None:
        """Wait until it rings, which it does at that moment of the monotonic clock, too."""
        if self._rung.is_set():
            return
        alarm = self._clock.call_later(moment - self._clock.monotonic(), self.ring)
        try:
            await self._rung.wait()
        finally:
            alarm.cancel()


class Hindrance:
    """Why a job does not get on with its machine or agent."""

    __slots__ = ("_told", "cause")

    def __init__(self) -> None:
        self.cause = ""
        """Empty: nothing is in its way."""
        self._told = ""

    def is_new(self, cause: str) -> bool:
        """Note why it waits; whether that is another cause than the last one, also where that was over meanwhile."""
        told, self._told, self.cause = self._told, cause, cause
        return cause != told

    def over(self) -> None:
        """Nothing is in its way any more, as far as is known."""
        self.cause = ""


async def beside(work: Awaitable[T], turn: Callable[[], Awaitable[bool]], bell: Bell) -> T | None:
    """What the work comes to; meanwhile one turn after the other, and a bell at the end of the work.

    None: a turn said False, that nobody wants it any more, and the work was cancelled.
    """
    result: T | None = None
    failed: Exception | None = None

    async def attempt() -> None:
        nonlocal result, failed
        try:
            result = await work
        except Exception as error:  # noqa: BLE001 - it is raised below, outside the group
            failed = error
        finally:
            bell.ring()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(attempt(), name=f"place of {bell.name}")
        while not task.done() and await turn():
            pass
        task.cancel()
    if failed is not None:
        raise failed
    return result
