"""Waiting for an event, but not for ever: how loops pause and can still be told to look again or to stop.

`happens` goes by the loop's own timer and costs next to nothing. `happens_by` goes by the clock port, so that a test
with virtual time says how long it lasts. Both only wait; what follows is the caller's decision.
"""

import asyncio

from remuda.lib.clock import Clock


async def happens(event: asyncio.Event, *, within_seconds: float | None) -> bool:
    """Whether the event was set in time; None waits as long as it takes."""
    try:
        async with asyncio.timeout(None if within_seconds is None else max(within_seconds, 0.0)):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def happens_by(clock: Clock, event: asyncio.Event, *, within_seconds: float, name: str) -> bool:
    """The same by a clock; `name` is what the waiting is for."""
    async with asyncio.TaskGroup() as group:
        timer = group.create_task(clock.sleep(within_seconds), name=f"{name}: timer")
        waiting = group.create_task(event.wait(), name=f"{name}: event")
        await asyncio.wait({timer, waiting}, return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        waiting.cancel()
    return event.is_set()
