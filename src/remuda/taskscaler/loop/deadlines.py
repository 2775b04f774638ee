"""Runs a call of a plugin with a deadline, because plugins in the manager's own process have none."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.lib.clock import Clock
from remuda.telemetry.logs import logger

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T], *, what: str) -> T:
    """Await `work`. Raises TemporaryError after `seconds`, or if `work` is cancelled or fails with an error other than
    PermanentError. `what` names the call in the error."""
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(_catch(work), name=what)
            timer = tasks.create_task(clock.sleep(seconds), name=f"{what}: deadline")
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
            is_late = not task.done()
            timer.cancel()
            task.cancel()
    finally:
        work.close()  # not begun if the caller was cancelled at once
    if is_late:
        raise TemporaryError(f"{what} was not answered within {seconds:g} seconds")
    if task.cancelled():
        # The work was cancelled, not the caller: without an error the caller would end silently.
        raise TemporaryError(f"{what} was cancelled")
    result, error = task.result()
    if error is None:
        return cast(T, result)
    if isinstance(error, TemporaryError | PermanentError):
        raise error
    logger("scaler").error(
        "call of a plugin or an instance failed unexpectedly; handling that as a temporary error",
        what=what,
        cause=f"{type(error).__name__}: {error}",
    )
    raise TemporaryError(f"{what}: {type(error).__name__}: {error}") from error


async def _catch(work: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
    """Await `work`; return (result, None) or (None, error). Raising would cancel the caller's other tasks."""
    try:
        return await work, None
    except Exception as error:  # noqa: BLE001 - `within` handles every error
        return None, error
