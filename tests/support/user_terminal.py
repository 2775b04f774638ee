"""A pseudo-terminal in which a test runs a remuda command, types, and reads what is shown."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

REMUDA = [sys.executable, "-m", "remuda"]


class UserTerminal:
    """Runs a remuda command in a pseudo-terminal."""

    def __init__(self, *words: str, env: dict[str, str], size: tuple[int, int] = (90, 33), term: str = "vt220") -> None:
        self._master, slave = pty.openpty()
        self.resize(*size)
        self.output = b""
        self.process = subprocess.Popen(
            [*REMUDA, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env | {"TERM": term},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - the test has only one thread
        )
        os.close(slave)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def read_until(self, text: str, seconds: float = 30) -> str:
        """Read output until it contains the text. Returns the output up to there and removes it from `output`."""
        deadline = time.monotonic() + seconds
        while (position := self.output.find(text.encode())) < 0:
            ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"{text!r} was not shown: {self.output.decode(errors='replace')}"
            try:
                self.output += os.read(self._master, 65536)
            except OSError:
                raise AssertionError(f"{text!r} was not shown at the end: {self.output.decode()}") from None
        result, self.output = self.output[: position + len(text)], self.output[position + len(text) :]
        return result.decode(errors="replace")

    def wait_for_exit(self) -> int:
        """Read the rest of the output, add it to `output`, and return the exit code."""
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                break
            if not data:
                break
            self.output += data
        return self.process.wait(20)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
