"""Hears the signal that tells a step's program to end, while it waits for something else.

For programs that have to end something elsewhere before they end themselves: `container_exec` a command in a container,
`custom_driver` a driver. They decide what follows from it.
"""

import os
import signal


class Told:
    """True once a signal has said that the command is to end; can be waited for beside the command's output."""

    def __init__(self, *, children: bool = False) -> None:
        """`children`: waiting for it ends when a child process has ended, too."""
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_told = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._hear)
        if children:
            signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def _hear(self, _number: int, _frame: object) -> None:
        self._is_told = True

    def __bool__(self) -> bool:
        return self._is_told

    def fileno(self) -> int:
        return self._reader

    def empty(self) -> None:
        """Forget the bytes that have woken us, not what they mean."""
        try:
            os.read(self._reader, 512)
        except BlockingIOError:
            return
