"""Tasks that outlive the call that starts them, such as one that keeps a plugin running or a reconnect.

An object has a `TaskOwner`, starts its tasks there, and calls `close` or `wait` when it ends. This is the only module
that calls `asyncio.create_task` and `asyncio.gather`; lint refuses them elsewhere (TID251)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TaskOwner:
    """Keeps references to running tasks; reports errors to `on_failure` or the loop. Reusable after `close`, `wait`."""

    def __init__(self, on_failure: Callable[[str, BaseException], None] | None = None) -> None:
        """`on_failure`: called with name and error of a task that failed; None: the event loop logs the error."""
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()
        self._by_name: dict[str, asyncio.Task[Any]] = {}

    def start(self, work: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        task = asyncio.create_task(work, name=name)  # noqa: TID251 - the owner itself
        self._tasks.add(task)
        self._by_name[name] = task
        task.add_done_callback(self._finish)
        return task

    def start_once(self, work: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        """Start a task, or return the running task of this name; in that case `work` is closed and not run."""
        task = self._by_name.get(name)
        if task is None or task.done():
            return self.start(work, name=name)
        work.close()
        return task

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended. Errors of tasks that are cancelled here are dropped."""
        tasks = list(self._tasks)
        for task in tasks:
            task.remove_done_callback(self._finish)
            self._forget(task)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # noqa: TID251 - supervised: cancelled above

    async def wait(self) -> None:
        """Wait until no task runs, also new ones. If the caller is cancelled, the tasks are cancelled, too."""
        while self._tasks:
            # From Python 3.12 on, `gather` of ended tasks returns at once, before the loop calls their `_finish`, which
            # reports failures and ends this loop. `sleep` lets it.
            await asyncio.gather(asyncio.sleep(0), *self._tasks, return_exceptions=True)  # noqa: TID251

    def _finish(self, task: "asyncio.Task[Any]") -> None:
        self._forget(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._on_failure is not None:
            self._on_failure(task.get_name(), error)
        else:
            context = {"message": f"task {task.get_name()!r} failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if self._by_name.get(task.get_name()) is task:
            del self._by_name[task.get_name()]


async def finish_despite_cancel(work: Coroutine[Any, Any, T], *, name: str) -> T:
    """Run a coroutine to its end even if the caller is cancelled; the cancellation is raised after that. A second
    cancellation cancels the coroutine, too."""
    task = asyncio.create_task(work, name=name)  # noqa: TID251 - ended or cancelled below
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
        raise
    finally:
        task.cancel()
