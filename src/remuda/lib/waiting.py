"""Waiting for an event, but not for ever: how loops pause and can still be told to look again or to stop.

`happens` goes by the loop's own timer and costs next to nothing. `happens_by` goes by the clock port, so that a test
with virtual time says how long it lasts. Both only wait; what follows is the caller's decision. `both` is for two
things that need nothing of each other, `carried_through` for one that must not end half-way.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

from remuda.lib.clock import Clock

A = TypeVar("A")
B = TypeVar("B")


class LightEvent:
    """What `asyncio.Event` is, in a tenth of the memory as long as nobody waits: for what there are thousands of."""

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


async def happens(event: asyncio.Event | LightEvent, *, within_seconds: float | None) -> bool:
    """Whether the event was set in time; None waits as long as it takes."""
    if within_seconds is None:
        return await event.wait()
    try:
        async with asyncio.timeout(max(within_seconds, 0.0)):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def happens_by(clock: Clock, *events: asyncio.Event | LightEvent, within_seconds: float, name: str) -> bool:
    """The same by a clock, and for any of several events; `name` is what the waiting is for."""
    async with asyncio.TaskGroup() as group:
        waiting = {group.create_task(clock.sleep(within_seconds), name=f"{name}: timer")}
        waiting |= {group.create_task(_until(event), name=f"{name}: event") for event in events}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
    return any(event.is_set() for event in events)


async def both(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B], *, name: str) -> tuple[A, B]:
    """What two things come to that are done at the same time; `name` is that of the other one.

    When one fails the other is stopped, and its error is raised as it is.
    """
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(other, name=name)
            done = await one
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return done, task.result()


async def carried_through(work: Coroutine[Any, Any, A], *, name: str) -> A:
    """What it comes to. Who is cancelled while waiting still waits for the end; who is cancelled twice, ends it."""
    task = asyncio.create_task(work, name=name)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # nobody is there to hear of it
        raise
    finally:
        task.cancel()


@asynccontextmanager
async def one_error() -> AsyncIterator[None]:
    """What goes wrong in one of several tasks goes wrong as it is: around a TaskGroup."""
    try:
        yield
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _until(event: asyncio.Event | LightEvent) -> None:
    await event.wait()
