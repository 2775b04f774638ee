"""Handles the signals of a manager: SIGTERM and SIGINT stop it (a second one at once), SIGQUIT ends it after its jobs,
SIGHUP reloads its configuration. No job is lost, because the journal and the agents have all jobs."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping

AT_ONCE = 1
"""Exit code after a second stop signal."""


class SignalEvents:
    """Events that signals set: `stop`, `drain` and `reload`. `handlers` maps each signal to the function to install."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.drain = asyncio.Event()
        self.reload = asyncio.Event()

    @property
    def handlers(self) -> Mapping[signal.Signals, Callable[[], None]]:
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
