"""A cell in its own process, so that tests can measure and stop it, with the client methods of `ServedCell`."""

import http.client
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from tests.support.cells.served_cell import ADMIN_TOKEN, ServedCell

from remuda.testing.lab import free_port
from remuda.testing.waiting import wait_until


class CellProcess(ServedCell):
    """Runs `remuda cell serve` while the `with` block runs. Settings become environment variables."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder)
        self._port = free_port()
        self._scheme = "https" if "tls_certificate" in settings else "http"
        self._environment = os.environ | {f"REMUDA_{name.upper()}": str(value) for name, value in settings.items()}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        data, address = self.settings.data, f"127.0.0.1:{self._port}"
        data.parent.mkdir(parents=True, exist_ok=True)
        self.url = f"{self._scheme}://{address}"
        with data.with_suffix(".out").open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "remuda", "cell", "serve", "--data", str(data), "--listen", address],
                env=self._environment | {"REMUDA_ADMIN_TOKEN": ADMIN_TOKEN},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
        try:
            wait_until(self._is_healthy, "the cell is healthy", 60)
        except BaseException:
            self.stop()
            raise
        return self

    def _is_healthy(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.settings.data.with_suffix(".out").read_text()[-2000:]
        try:
            return self.send("GET", "/-/health").status == 200
        except OSError:
            return False

    def connect(self, seconds: float = 300) -> http.client.HTTPConnection:
        """A connection with a long timeout, for tests in which many requests wait for each other."""
        return super().connect(seconds)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, seconds: float) -> int:
        """Wait until the process has ended, and return its exit code."""
        assert self._process is not None
        return self._process.wait(seconds)

    @property
    def log(self) -> str:
        """What the process has printed and logged."""
        return self.settings.data.with_suffix(".out").read_text()

    def freeze(self, seconds: float) -> None:
        """Stop the process (SIGSTOP) for so long, to simulate a lack of processor time."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def _status(self, name: str) -> int:
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024

    def peak_bytes(self) -> int:
        """Peak resident memory of the process."""
        return self._status("VmHWM")

    def open_files(self, part: str) -> int:
        """Number of open files of the process whose path contains `part`."""
        assert self._process is not None
        count = 0
        for link in Path(f"/proc/{self._process.pid}/fd").iterdir():
            try:
                count += part in os.readlink(link)
            except OSError:
                continue
        return count
