"""A pool of threads that compile pipeline files, because a large file takes seconds and the event loop must not wait.

Only a few threads compute at the same time: they share Python's interpreter lock, so more are not faster, and delay the
event loop. While a thread waits for the event loop (for the store or a web server), another one may run."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

MAX_OPEN = 64
"""Threads including those that wait, so that a web server that hangs delays only projects that use it."""
ANSWER_SECONDS = 30.0
"""How long a thread waits for an answer of the event loop."""

Ask = Callable[[Coroutine[Any, Any, Any]], Any]
_T = TypeVar("_T")


class Compilers:
    """Threads that compile pipeline files: at most `at_once` compute; those waiting for the event loop do not count."""

    def __init__(self, at_once: int, *, name: str) -> None:
        self._threads = ThreadPoolExecutor(MAX_OPEN, thread_name_prefix=name)
        self._turns = threading.Semaphore(at_once)

    async def run(self, work: Callable[[Ask], _T]) -> _T:
        """Call `work` in a thread. `work` gets a function that runs a coroutine on the event loop and waits for its
        result; after `ANSWER_SECONDS` that function cancels the coroutine and raises TimeoutError."""
        loop = asyncio.get_running_loop()

        def ask(question: Coroutine[Any, Any, Any]) -> Any:
            answer = asyncio.run_coroutine_threadsafe(question, loop)
            self._turns.release()
            try:
                return answer.result(ANSWER_SECONDS)
            finally:
                answer.cancel()  # no effect unless the wait timed out
                self._turns.acquire()

        def in_turn() -> _T:
            with self._turns:
                return work(ask)

        return await loop.run_in_executor(self._threads, in_turn)
