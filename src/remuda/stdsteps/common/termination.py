"""Lets a program notice SIGTERM, SIGINT and SIGHUP while it waits in `select`, because it has to stop another process
before it exits: `container.exec` a command in a container, `custom.driver` a program of a custom executor."""

import os
import signal


class Termination:
    """Records whether SIGTERM, SIGINT or SIGHUP has arrived: it is true afterwards. Its file descriptor becomes
    readable at a signal, so that `select` returns."""

    def __init__(self, *, children: bool = False) -> None:
        """`children`: make `select` return also when a child process exits."""
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_requested = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)
        if children:
            signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def _note(self, _number: int, _frame: object) -> None:
        self._is_requested = True

    def __bool__(self) -> bool:
        return self._is_requested

    def fileno(self) -> int:
        return self._reader

    def drain(self) -> None:
        """Empty the pipe, so that the descriptor is not readable until the next signal. The truth value is kept."""
        try:
            os.read(self._reader, 512)
        except BlockingIOError:
            return
