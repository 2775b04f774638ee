"""How a manager is told to stop, drain or read its configuration again, as signals say it. The same for every command.

SIGTERM and SIGINT stop it; a second one ends the process where it stands, which costs no job anything: what matters is
in the journal and with the agents. SIGQUIT drains, SIGHUP reads the configuration again.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping

AT_ONCE = 1
"""Exit code of a process that was told to stop twice."""


class Orders:
    """What the manager has been told."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.drain = asyncio.Event()
        self.reload = asyncio.Event()

    @property
    def by_signal(self) -> Mapping[signal.Signals, Callable[[], None]]:
        """What each signal means."""
        return {
            signal.SIGTERM: self._stop,
            signal.SIGINT: self._stop,
            signal.SIGQUIT: self.drain.set,
            signal.SIGHUP: self.reload.set,
        }

    def _stop(self) -> None:
        if self.stop.is_set():
            os._exit(AT_ONCE)
        self.stop.set()
