"""The processes that run a job's standard steps: which of them takes the next one.

A leader that has run a step waits for another one of its job (`standby`). Here it is kept meanwhile, for a moment: a
job may take hours for what comes in between. Where none waits, a new one is forked; a step that needs an enclosure
gets one of its own. Nothing here is stored: whoever was given a step claims it by its files, and a leader whose agent
is gone ends.

`carrying` has one such keeper for each job, `execution` is the user.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from remuda.steps.process.fork_server import Leader, Standby

WAIT_SECONDS = 1.0
"""How long a leader is kept: longer than short scripts take, and no longer than its memory is worth."""


class Leaders:
    """Those of one job."""

    def __init__(self, standby: Standby | None) -> None:
        self._standby = standby
        self._waiting: dict[Leader, asyncio.TimerHandle] = {}

    def start(self, request: Mapping[str, Any], *, anew: bool = False) -> tuple[Leader, bool] | None:
        """Have a step run: by whom, and whether that one was only given it, and may have died before it took it.

        None: use the shim. `anew`: only a new process is good enough."""
        while self._waiting and not anew and not request["enclosure"]:
            leader, timer = self._waiting.popitem()
            timer.cancel()
            if leader.take(request):
                return leader, True
        made = self._standby.spawn(request) if self._standby is not None else None
        return None if made is None else (made, False)

    def keep(self, leader: Leader) -> None:
        """One that waits."""
        loop = asyncio.get_running_loop()
        self._waiting[leader] = loop.call_later(WAIT_SECONDS, self._dismiss, leader)

    def dismiss(self) -> None:
        """All of them."""
        for leader in tuple(self._waiting):
            self._dismiss(leader)

    def _dismiss(self, leader: Leader) -> None:
        self._waiting.pop(leader).cancel()
        assert self._standby is not None
        self._standby.part(leader)
