"""A call of a plugin, and how long it may take: a plugin in our own process has no deadlines of its own."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.lib.clock import Clock
from remuda.telemetry.logs import logger

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T], *, what: str) -> T:
    """What it comes to; TemporaryError when that takes too long, or when it fails or is
    broken off in a way that nobody meant."""
    task = asyncio.create_task(work, name=what)
    timer = asyncio.create_task(clock.sleep(seconds), name=f"{what}: deadline")
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TemporaryError(f"{what} was not answered within {seconds:g} seconds")
        if task.cancelled():
            # By somebody else: who called is not, and would end without a word.
            raise TemporaryError(f"{what} was broken off")
        return task.result()
    except (TemporaryError, PermanentError):
        raise
    except Exception as error:
        logger("scaler").error("a fault", what=what, cause=f"{type(error).__name__}: {error}")
        raise TemporaryError(f"{what}: {type(error).__name__}: {error}") from error
    finally:
        timer.cancel()
        task.cancel()
        await asyncio.gather(task, timer, return_exceptions=True)
