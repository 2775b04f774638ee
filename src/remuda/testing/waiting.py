"""Helpers that wait in a test for a condition: `wait_until` blocks the thread, `until` only the task.

They call a function repeatedly and return its first true result. Code that gets notifications should wait for an event.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")


class WaitError(AssertionError):
    """Raised if a condition did not become true in time."""


PAUSE_SECONDS = 0.02
"""Time between two calls of a probe."""


def wait_until(probe: Callable[[], T], what: str = "", seconds: float = 30) -> T:
    """Call `probe` until its result is true, and return that. Raises WaitError with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (answer := probe()):
        _check(deadline, what, seconds, answer)
        time.sleep(PAUSE_SECONDS)
    return answer


@overload
async def until(probe: Callable[[], Awaitable[T]], what: str = "", seconds: float = 30) -> T: ...
@overload
async def until(probe: Callable[[], T], what: str = "", seconds: float = 30) -> T: ...
async def until(probe: Callable[[], Any], what: str = "", seconds: float = 30) -> Any:
    """Call `probe`, a function or coroutine function, until its result is true, and return that. Raises WaitError with
    `what` after `seconds`, or later if one call lasts longer."""
    deadline = time.monotonic() + seconds
    while not (answer := await _call(probe)):
        _check(deadline, what, seconds, answer)
        await asyncio.sleep(PAUSE_SECONDS)
    return answer


async def _call(probe: Callable[[], Any]) -> Any:
    answer = probe()
    return await answer if inspect.isawaitable(answer) else answer


def _check(deadline: float, what: str, seconds: float, answer: object) -> None:
    if time.monotonic() > deadline:
        condition = what or "the condition did not come true"
        raise WaitError(f"waited {seconds} s in vain: {condition}; the last answer was {answer!r}")
