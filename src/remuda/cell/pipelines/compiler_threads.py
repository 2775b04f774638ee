"""Threads in which pipeline files are compiled: a large file takes seconds, and the loop must go on meanwhile.

Decided here: how many work at the same time. They share one interpreter, so more at once are not faster, they only
make the loop wait; one that waits for an answer of the loop (the store, a web server) lets another one work.
`remuda.cell.pipelines.creation` has some for pipelines and some for mere checks, so that these cannot hold up those.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

MAX_OPEN = 64
"""With those that wait: a web server that hangs must not hold up projects that do not ask it."""
ANSWER_SECONDS = 30.0
"""How long one waits for an answer."""

Ask = Callable[[Coroutine[Any, Any, Any]], Any]
_T = TypeVar("_T")


class Compilers:
    """So many that work at the same time."""

    def __init__(self, at_once: int, *, name: str) -> None:
        self._threads = ThreadPoolExecutor(MAX_OPEN, thread_name_prefix=name)
        self._turns = threading.Semaphore(at_once)

    async def run(self, work: Callable[[Ask], _T]) -> _T:
        """What comes of the work, which is given how to ask the loop."""
        loop = asyncio.get_running_loop()

        def ask(question: Coroutine[Any, Any, Any]) -> Any:
            self._turns.release()
            try:
                return asyncio.run_coroutine_threadsafe(question, loop).result(ANSWER_SECONDS)
            finally:
                self._turns.acquire()

        def in_turn() -> _T:
            with self._turns:
                return work(ask)

        return await loop.run_in_executor(self._threads, in_turn)
