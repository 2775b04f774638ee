"""Helpers that wait in a test for a condition: `wait_until` blocks the thread, `until` only the task.

Both call a function (the probe) repeatedly and return its first true result. After the timeout they raise a WaitError,
which names the condition and shows the last result. Code that gets notifications should wait for an event instead.
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
    """Call `probe` repeatedly and return its first true result. Raises WaitError, with `what` in the message, if there
    is none within `seconds`."""
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
    """Call `probe`, a function or coroutine function, repeatedly and return its first true result. Raises WaitError,
    with `what` in the message, if there is none within `seconds`. One call may last longer than that."""
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
