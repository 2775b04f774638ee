"""Optional helpers for plugins that create machines in background tasks, and a check that an SSH server answers."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from remuda.lib.tasks import TaskOwner
from remuda.lib.waiting import wait_for_event

ANSWER_SECONDS = 5.0


class BackgroundTasks:
    """Named background tasks, usually for machines, one at a time per name. Errors are logged; no task is repeated."""

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
        """For background tasks: sleep and return True; False at once during `finish`, so that the task ends itself."""
        return not await wait_for_event(self._ending, within_seconds=seconds)

    async def finish(self) -> None:
        """Wait until all tasks have ended. Meanwhile `rest` returns False at once, so that sleeping tasks end."""
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
