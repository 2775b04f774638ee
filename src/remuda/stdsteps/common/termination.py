"""Notices SIGTERM, SIGINT and SIGHUP while a program waits for something else.

For programs that have to end something elsewhere before they end themselves: `container.exec` a command in a container,
`custom.driver` a program of a driver.
"""

import os
import signal


class Termination:
    """True after a signal that ends this process. Has a descriptor, so that `select` returns at the signal."""

    def __init__(self, *, children: bool = False) -> None:
        """`children`: `select` also returns when a child process has ended."""
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
        """Read the bytes that made the descriptor readable. The state stays."""
        try:
            os.read(self._reader, 512)
        except BlockingIOError:
            return
