"""Runs a real S3 server for tests: versitygw on a folder, as `make interop` builds it from its Go module."""

import http.client
import os
import secrets
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from remuda.testing.lab import free_port

PROGRAM = Path(__file__).parents[3] / "build" / "interop" / "versitygw"
_START_SECONDS = 20


class S3Server:
    """Serves the subfolders of `folder` as buckets while the `with` block runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._access_log = folder.parent / f"{folder.name}.access"
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": secrets.token_hex(8),
            "AWS_REGION": "us-east-1",
        }
        """Environment variables for clients."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        keys = {
            "ROOT_ACCESS_KEY": self.environment["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_KEY": self.environment["AWS_SECRET_ACCESS_KEY"],
        }
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "--port", f"127.0.0.1:{self.port}", "--access-log", self._access_log, "posix", self.folder],
                env=os.environ | keys,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                raise AssertionError(f"versitygw does not serve; see {self.folder}.log")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server. Stored objects stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def new_bucket(self, name: str) -> str:
        """Create an empty bucket. Returns its URL."""
        (self.folder / name).mkdir()
        return f"s3://{name}"

    def requests(self, operation: str) -> int:
        """Number of requests of an operation, such as GetObject."""
        return self._access_log.read_text().count(f" s3_{operation} ")

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status < 500
        except OSError:
            return False
        finally:
            connection.close()
