"""Lets a program notice SIGTERM, SIGINT and SIGHUP while it waits in `select`, because it has to stop another process
before it exits. For `container.exec` and `container.shell` this is a command in a container, for `custom.driver` a
program of a custom executor."""

import os
import signal


class Termination:
    """Records whether SIGTERM, SIGINT or SIGHUP has arrived: the object is true afterwards. Its file descriptor becomes
    readable at a signal, so that `select` returns."""

    def __init__(self, *others: signal.Signals) -> None:
        """`others`: signals that also make `select` return, but do not make the object true."""
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_requested = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)
        for number in others:
            signal.signal(number, lambda *_: None)
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
