"""Starts the event loop of a process, with a correction of `asyncio.timeout` for Python 3.11.0 to 3.11.3.

If a task of a TaskGroup fails while the block ends, the group cancels its parent task and does not take the
cancellation back. In these versions every later timeout of that parent raises CancelledError instead of TimeoutError,
because it expects that the task has no other cancellation. The correction is that of Python 3.11.4: the timeout
compares the number of cancellations at the end of its block with the number at the beginning. Third-party libraries use
`asyncio.timeout`, too, so the class itself is changed. Lint refuses `asyncio.run` elsewhere (TID251)."""

import asyncio
import sys
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
_enter = asyncio.Timeout.__aenter__
_exit = asyncio.Timeout.__aexit__


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop, as `asyncio.run` does."""
    correct_timeouts()
    return asyncio.run(work)  # noqa: TID251 - the only place


def correct_timeouts() -> None:
    """Change `asyncio.timeout` for the whole process if this Python needs it. Calling it again changes nothing."""
    if sys.version_info < (3, 11, 4):
        asyncio.Timeout.__aenter__ = _enter_and_count  # type: ignore[assignment,method-assign]
        asyncio.Timeout.__aexit__ = _exit_and_compare  # type: ignore[assignment,method-assign]


async def _enter_and_count(timeout: asyncio.Timeout) -> asyncio.Timeout:
    await _enter(timeout)
    timeout.__dict__["cancelling"] = count_cancellations()
    return timeout


async def _exit_and_compare(
    timeout: asyncio.Timeout,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    await _exit(timeout, kind, error, traceback)
    is_own = timeout.expired() and count_cancellations() <= timeout.__dict__["cancelling"]
    if is_own and kind is asyncio.CancelledError:
        raise TimeoutError from error


def count_cancellations() -> int:
    """Return how many cancellations of the current task were not taken back. To learn whether the task is cancelled
    inside a block, compare with the count before the block: an earlier TaskGroup may have left a cancellation."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
