"""Keeps the workers of a job that wait for its next built-in step.

A worker is a process that runs built-in steps (`fork_server`). After one of the usual steps it waits `WAIT_SECONDS` for
another one of the same job; a step with limits or another user always gets a new worker. The pool is not stored:
waiting workers exit with their agent."""

import asyncio
from collections.abc import Mapping
from typing import Any

from remuda.steps.process.fork_server import ForkServer, Worker

WAIT_SECONDS = 1.0
"""How long a worker waits: longer than short scripts take, and no longer than its memory is worth."""


class WorkerPool:
    def __init__(self, fork_server: ForkServer | None) -> None:
        self._fork_server = fork_server
        self._waiting: dict[Worker, asyncio.TimerHandle] = {}

    def start(self, request: Mapping[str, Any], *, anew: bool = False) -> tuple[Worker, bool] | None:
        """Have a waiting worker run the step. Fork one if none waits, for `anew`, limits or another user. Returns the
        worker, and True if it waited: it may have died before it received the step. None if forking fails."""
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
