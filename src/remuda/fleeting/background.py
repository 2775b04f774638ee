"""Optional helpers for plugins that create machines in background tasks, and a check that an SSH server answers."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from remuda.lib.tasks import TaskOwner
from remuda.lib.waiting import wait_for_event

ANSWER_SECONDS = 5.0


class BackgroundTasks:
    """Background tasks of a plugin. A task has a name, usually that of its machine; of each name at most one runs at a
    time. A failed task is logged and not repeated."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._tasks = TaskOwner(on_failure=self._log_failure)
        self._ending = asyncio.Event()

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    def begin(self, name: str, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Start a task that runs `work`. If a task of this name is running, return that one and do not run `work`."""
        return self._tasks.start_once(work, name=name)

    async def rest(self, seconds: float) -> bool:
        """Called by a task: sleep for `seconds`, return True. False at once if `finish` waits: the task should end."""
        return not await wait_for_event(self._ending, within_seconds=seconds)

    async def finish(self) -> None:
        """Wait for all tasks to end. Calls of `rest` return False at once meanwhile."""
        self._ending.set()
        try:
            await self._tasks.wait()
        finally:
            self._ending.clear()

    def _log_failure(self, name: str, error: BaseException) -> None:
        self._log.error(
            "background task %s failed; it stays ended until the plugin starts it again: %s: %s",
            name,
            type(error).__name__,
            error,
        )


async def answers_ssh(host: str, port: int) -> bool:
    """True if an SSH server answers at this address within `ANSWER_SECONDS`."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                return (await reader.readexactly(4)) == b"SSH-"
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False
