"""The workers of a job that wait for its next standard step.

A worker that has run a step waits a moment for another one of its job (`fork_server`). If none waits, a new one is
forked; a step with an enclosure gets one of its own. The pool is not stored: a worker claims its step by the step's
files, and ends with its agent. Each job has one pool, `process_execution` uses it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from remuda.steps.process.fork_server import ForkServer, Worker

WAIT_SECONDS = 1.0
"""How long a worker waits: longer than short scripts take, and no longer than its memory is worth."""


class WorkerPool:
    """The waiting workers of one job."""

    def __init__(self, fork_server: ForkServer | None) -> None:
        self._fork_server = fork_server
        self._waiting: dict[Worker, asyncio.TimerHandle] = {}

    def start(self, request: Mapping[str, Any], *, anew: bool = False) -> tuple[Worker, bool] | None:
        """Have a worker run a step. Returns the worker, and True if it was only sent the step and may have died before
        it took it. None: use the shim. `anew`: only a new worker will do."""
        while self._waiting and not anew and not request["enclosure"]:
            worker, timer = self._waiting.popitem()
            timer.cancel()
            if worker.take(request):
                return worker, True
        forked = self._fork_server.spawn(request) if self._fork_server is not None else None
        return None if forked is None else (forked, False)

    def keep(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        self._waiting[worker] = loop.call_later(WAIT_SECONDS, self._dismiss, worker)

    def dismiss(self) -> None:
        for worker in tuple(self._waiting):
            self._dismiss(worker)

    def _dismiss(self, worker: Worker) -> None:
        self._waiting.pop(worker).cancel()
        assert self._fork_server is not None
        self._fork_server.part(worker)
