"""Runs a real PostgreSQL server for tests, with its own folder and port. Tests can kill and restart it.

PostgreSQL refuses to run as root; then it runs as the user `postgres` of the Debian package.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

from remuda.testing.lab import free_port

START_SECONDS = 60.0


class PostgresServer:
    """A server that runs while the `with` block runs."""

    def __init__(self, **settings: str) -> None:
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="remuda-postgres-"))
        self._settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(self._folder), **settings}
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as_user = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(self._folder, "postgres", "postgres")
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)

    @staticmethod
    def is_installed() -> bool:
        """True if PostgreSQL is installed."""
        return _program("initdb") is not None

    def __enter__(self) -> Self:
        data = self._folder / "data"
        options = ["-U", "remuda", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        command = [str(_program("initdb")), "-D", str(data), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **self._as_user)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://remuda@127.0.0.1:{self.port}/{database}"

    @contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """Create a database as a copy of `template`. Yields its URL, and drops it at the end."""
        name = f"cell_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield self.url(name)
        self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def run(self, sql: str) -> None:
        """Run a statement with psql."""
        subprocess.run([str(_program("psql")), "-qX", "-v", "ON_ERROR_STOP=1", "-c", sql, self.url()], check=True)

    def start(self) -> None:
        """Start or restart the server, and wait until it accepts connections."""
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        command = [str(_program("postgres")), "-D", str(self._folder / "data"), f"--port={self.port}", *options]
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            with (self._folder / "log").open("ab") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._as_user)
            self._process = process
            while process.poll() is None and time.monotonic() < until:
                ready_command = [str(_program("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
                if subprocess.run(ready_command, check=False).returncode == 0:
                    return
                time.sleep(0.02)
            # After a kill, a process of the old server may still hold its shared memory.
            time.sleep(0.1)
        raise AssertionError(f"PostgreSQL does not start: {(self._folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """Kill (SIGKILL) the server and all its processes."""
        if self._process is None or self._process.poll() is not None:
            return
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self._process.kill()
        self._process.wait()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)


def _program(name: str) -> Path | None:
    installed = shutil.which(name)
    folders = [Path(installed).parent] if installed else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder / name for folder in folders if (folder / name).exists()), None)
