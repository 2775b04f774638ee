"""Starts the event loop of a process, with corrections of asyncio for older Pythons. Third-party libraries use these
classes, too, so the classes themselves are changed. Lint refuses `asyncio.run` elsewhere (TID251).

`asyncio.TaskGroup`, before Python 3.13: if a task fails while the block ends, the group cancels its parent task and
does not take that back. What looks at the number of cancellations later is misled: Ctrl-C ends the process with
CancelledError instead of KeyboardInterrupt, and timeouts see below. And if somebody else cancels the parent while the
group fails, the parent continues as if nobody had. The correction does what Python 3.13 does: the group takes exactly
its own cancellation back, and another one is delivered where the parent waits next.

`asyncio.timeout`, before Python 3.11.4: in a task that counts an earlier cancellation (some libraries leave one) it
raises CancelledError instead of TimeoutError. The correction is that of Python 3.11.4: the timeout compares the number
of cancellations at the end of its block with the number at the beginning."""

import asyncio
import sys
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
_enter_timeout = asyncio.Timeout.__aenter__
_exit_timeout = asyncio.Timeout.__aexit__
_exit_group = asyncio.TaskGroup.__aexit__


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop, as `asyncio.run` does."""
    correct_asyncio()
    return asyncio.run(work)  # noqa: TID251 - the only place


def correct_asyncio() -> None:
    """Change asyncio for the whole process where this Python needs it. Calling it again changes nothing."""
    if sys.version_info < (3, 11, 4):
        asyncio.Timeout.__aenter__ = _enter_timeout_and_count  # type: ignore[assignment,method-assign]
        asyncio.Timeout.__aexit__ = _exit_timeout_and_compare  # type: ignore[assignment,method-assign]
    if sys.version_info < (3, 13):
        asyncio.TaskGroup.__aexit__ = _exit_group_and_take_back  # type: ignore[assignment,method-assign]


async def _enter_timeout_and_count(timeout: asyncio.Timeout) -> asyncio.Timeout:
    await _enter_timeout(timeout)
    timeout.__dict__["cancelling"] = count_cancellations()
    return timeout


async def _exit_timeout_and_compare(
    timeout: asyncio.Timeout,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    await _exit_timeout(timeout, kind, error, traceback)
    is_own = timeout.expired() and count_cancellations() <= timeout.__dict__["cancelling"]
    if is_own and kind is asyncio.CancelledError:
        raise TimeoutError from error


async def _exit_group_and_take_back(
    group: asyncio.TaskGroup,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    state = group.__dict__
    parent: asyncio.Task[Any] = state["_parent_task"]
    is_taken_back = state["_parent_cancel_requested"]
    try:
        await _exit_group(group, kind, error, traceback)
    except BaseException as raised:
        if state["_parent_cancel_requested"] and not is_taken_back:
            parent.uncancel()
        if isinstance(raised, BaseExceptionGroup) and parent.cancelling():
            parent.uncancel()
            parent.cancel()
        raise


def count_cancellations() -> int:
    """Return how many cancellations of the current task were not taken back. To learn whether the task is cancelled
    inside a block, compare with the count before the block: a library may have left one."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
