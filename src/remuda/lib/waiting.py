"""Waiting for events with a time limit, and running coroutines together.

`wait_for_event` is cheap. `wait_for_any_event` uses the clock port, so tests with virtual time control it.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

from remuda.lib.clock import Clock

A = TypeVar("A")
B = TypeVar("B")


class LightEvent:
    """Like `asyncio.Event`, with a tenth of its memory while nobody waits; for thousands of instances."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: tuple[asyncio.Future[None], ...] = ()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> Literal[True]:
        if not self._is_set:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting = (*self._waiting, future)
            try:
                await future
            finally:
                self._waiting = tuple(other for other in self._waiting if other is not future)
        return True


async def wait_for_event(event: asyncio.Event | LightEvent, *, within_seconds: float | None) -> bool:
    """Wait until the event is set. Returns False if it was not set within that time; None means no limit."""
    if within_seconds is None:
        return await event.wait()
    try:
        async with asyncio.timeout(max(within_seconds, 0.0)):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def wait_for_any_event(
    clock: Clock, *events: asyncio.Event | LightEvent, within_seconds: float, name: str
) -> bool:
    """Wait until any event is set. Returns False if none was within that time. `name`: of the waiting tasks."""
    async with asyncio.TaskGroup() as group:
        waiting = {group.create_task(clock.sleep(within_seconds), name=f"{name}: timer")}
        waiting |= {group.create_task(_until(event), name=f"{name}: event") for event in events}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
    return any(event.is_set() for event in events)


async def run_both(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B], *, name: str) -> tuple[A, B]:
    """Run two coroutines at once. If one fails, the other is cancelled and the error is raised, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(other, name=name)
            done = await one
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return done, task.result()


@asynccontextmanager
async def unwrap_group_error() -> AsyncIterator[None]:
    """Put this around a TaskGroup to raise its first error itself instead of an exception group."""
    try:
        yield
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _until(event: asyncio.Event | LightEvent) -> None:
    await event.wait()
