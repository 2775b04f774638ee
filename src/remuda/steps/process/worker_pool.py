"""The processes that run a job's standard steps: which of them takes the next one.

A worker that has run a step waits for another one of its job (`fork_server`). Here it is kept meanwhile, for a moment: a
job may take hours for what comes in between. Where none waits, a new one is forked; a step that needs an enclosure
gets one of its own. Nothing here is stored: whoever was given a step claims it by its files, and a worker whose agent
is gone ends.

`carrying` has one such keeper for each job, `execution` is the user.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from remuda.steps.process.fork_server import ForkServer, Worker

WAIT_SECONDS = 1.0
"""How long a worker is kept: longer than short scripts take, and no longer than its memory is worth."""


class WorkerPool:
    """Those of one job."""

    def __init__(self, fork_server: ForkServer | None) -> None:
        self._fork_server = fork_server
        self._waiting: dict[Worker, asyncio.TimerHandle] = {}

    def start(self, request: Mapping[str, Any], *, anew: bool = False) -> tuple[Worker, bool] | None:
        """Have a step run: by whom, and whether that one was only given it, and may have died before it took it.

        None: use the shim. `anew`: only a new process is good enough."""
        while self._waiting and not anew and not request["enclosure"]:
            worker, timer = self._waiting.popitem()
            timer.cancel()
            if worker.take(request):
                return worker, True
        made = self._fork_server.spawn(request) if self._fork_server is not None else None
        return None if made is None else (made, False)

    def keep(self, worker: Worker) -> None:
        """One that waits."""
        loop = asyncio.get_running_loop()
        self._waiting[worker] = loop.call_later(WAIT_SECONDS, self._dismiss, worker)

    def dismiss(self) -> None:
        """All of them."""
        for worker in tuple(self._waiting):
            self._dismiss(worker)

    def _dismiss(self, worker: Worker) -> None:
        self._waiting.pop(worker).cancel()
        assert self._fork_server is not None
        self._fork_server.part(worker)
