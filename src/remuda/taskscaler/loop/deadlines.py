"""Deadline for a call of a plugin. A plugin in our own process has no deadlines of its own."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.lib.clock import Clock
from remuda.telemetry.logs import logger

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T], *, what: str) -> T:
    """Result of `work`. TemporaryError after the deadline, and for any other failure or cancellation of `work`."""
    task = asyncio.create_task(work, name=what)
    timer = asyncio.create_task(clock.sleep(seconds), name=f"{what}: deadline")
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TemporaryError(f"{what} was not answered within {seconds:g} seconds")
        if task.cancelled():
            # The work was cancelled, not the caller: without an error the caller would end silently.
            raise TemporaryError(f"{what} was broken off")
        return task.result()
    except (TemporaryError, PermanentError):
        raise
    except Exception as error:
        logger("scaler").error("call failed unexpectedly", what=what, cause=f"{type(error).__name__}: {error}")
        raise TemporaryError(f"{what}: {type(error).__name__}: {error}") from error
    finally:
        timer.cancel()
        task.cancel()
        await asyncio.gather(task, timer, return_exceptions=True)
