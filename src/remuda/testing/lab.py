"""The lab: a whole Remuda system of real processes for tests, started with an operator's commands.

Cell, manager and agent run on loopback with their own data folder, so labs can run in parallel. A test kills a part
with `lab.manager.kill()`, or names a kill point: the process that reaches this place in its code dies there once, and
`supervise()` starts a new one. It is synchronous on purpose: a test reads like an operator's actions."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from remuda.lib.files import InUseError, hold_lock
from remuda.steps.process.fork_server import NAME
from remuda.testing.waiting import WaitError, wait_until

ADMIN_TOKEN = "glpat-lab-administrator-token"


class LabError(Exception):
    """Raised if a process ends too early or a wait takes too long. The message has the last output of the processes."""


_port_locks = contextlib.ExitStack()
"""Locks of the ports that this process reserved, until it ends."""


def free_port() -> int:
    """Reserve a loopback port for parts that are restarted on it: a lock file keeps other labs away, and the port is
    below the range of ephemeral ports, which other processes get."""
    folder = Path(tempfile.gettempdir()) / f"remuda-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for port in random.sample(range(20_000, 30_000), 1000):
        with contextlib.suppress(InUseError, OSError):
            _port_locks.enter_context(hold_lock(folder / str(port)))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            return port
    raise LabError("no free port between 20000 and 30000")


def processes() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        yield int(folder.name), words


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@dataclass
class Part:
    """One process of the lab, which can be killed and started again."""

    name: str
    command: list[str]
    environment: dict[str, str]
    output: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def start(self) -> None:
        if self.is_alive():
            return
        with self.output.open("ab") as sink:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
            )
        self.starts += 1

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def stop(self, seconds: float = 15) -> int:
        """Send SIGTERM and return the exit code. Kills the process and raises LabError if it takes too long."""
        return self._signal(signal.SIGTERM, seconds)

    def _signal(self, number: signal.Signals, seconds: float = 15) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise LabError(f"{self.name} did not stop within {seconds} s\n{self.tail()}") from None

    def tail(self, size: int = 4000) -> str:
        return self.output.read_bytes()[-size:].decode(errors="replace") if self.output.exists() else ""


@dataclass
class Lab:
    """A running cell, manager and agent, as a context manager."""

    folder: Path
    concurrent: int = 4
    kill_point: str = ""
    """A named place in the code. The process that reaches it kills itself there, once."""
    settings: dict[str, str] = field(default_factory=dict)
    """Further environment variables of all parts."""
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.home = self.folder / "home"
        self.home.mkdir(exist_ok=True)
        self.manager_data = self.folder / "manager"
        self.manager_jobs = self.folder / "manager.jobs"
        self.config = self.folder / "config.toml"
        self.mark = self.folder / "killed"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("CI_", "GIT_"))}
        environment |= {
            "HOME": str(self.home),
            "REMUDA_ADMIN_TOKEN": ADMIN_TOKEN,
            "REMUDA_KILL_POINT": self.kill_point,
            "REMUDA_KILL_MARK": str(self.mark),
            **self.settings,
        }
        remuda = [sys.executable, "-m", "remuda"]
        self.cell = Part(
            "cell",
            [*remuda, "cell", "serve", "--data", str(self.folder / "cell"), "--listen", f"127.0.0.1:{self.port}"],
            environment,
            self.folder / "cell.out",
        )
        self.manager = Part(
            "manager",
            [*remuda, "manager", "run", "--config", str(self.config), "--data", str(self.manager_data)],
            environment,
            self.folder / "manager.out",
        )
        self._stopping = threading.Event()
        self._supervisor: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the cell, create a runner there if there is no configuration file yet, and start the manager."""
        self.start_cell()
        if not self.config.exists():
            runner = self.call("POST", "/api/v4/user/runners", {"runner_type": "instance_type", "description": "lab"})
            self.config.write_text(
                f"concurrent = {self.concurrent}\ncheck_interval = 1\n\n[[runners]]\n"
                f'name = "lab"\nurl = "{self.url}"\ntoken = "{runner["token"]}"\nexecutor = "shell"\n'
                f'request_concurrency = {self.concurrent}\noutput_limit = 65536\nbuilds_dir = "{self.folder}/builds"\n'
            )
            self.config.chmod(0o600)
        self.manager.start()

    def start_cell(self) -> None:
        """Start the cell and wait until it answers. Raises LabError if it ends before that."""
        self.cell.start()
        self.wait_until(lambda: self.is_healthy() or not self.cell.is_alive(), "the cell serves")
        if not self.cell.is_alive():
            raise LabError(f"the cell ended while starting\n{self.cell.tail()}")

    def close(self) -> None:
        self._stopping.set()
        if self._supervisor is not None:
            self._supervisor.join()
        with contextlib.suppress(LabError):
            self.manager.stop()
        self.kill_agent()
        self._kill_steps()
        with contextlib.suppress(LabError):
            self.cell.stop()

    def supervise(self) -> None:
        """From now on, restart the cell or the manager whenever it dies."""

        def watch() -> None:
            while not self._stopping.wait(0.05):
                for part in (self.cell, self.manager):
                    part.start()

        self._supervisor = threading.Thread(target=watch, name="lab-supervisor", daemon=True)
        self._supervisor.start()

    def agent_pids(self) -> list[int]:
        """Process ids of the manager's agent, without its forked children, which have the same command line."""
        return [pid for pid in self._agent_and_forks() if name_of(pid) != NAME]

    def standby_pids(self) -> list[int]:
        """Process ids of the agent's forked children: the fork server, and standard steps that it has forked."""
        return [pid for pid in self._agent_and_forks() if name_of(pid) == NAME]

    def _agent_and_forks(self) -> list[int]:
        folder = str(self.manager_data)
        return [
            pid
            for pid, words in processes()
            if "serve" in words and "remuda.steps" in words and any(folder in word for word in words)
        ]

    def kill_agent(self) -> None:
        """Send SIGKILL to the agent. Its jobs go on."""
        for pid in self.agent_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _kill_steps(self) -> None:
        """Kill the process groups of steps, found by command lines with a file in the manager's data folder."""
        for pid, words in processes():
            if pid != os.getpid() and any(word.startswith(str(self.manager_data)) for word in words):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/health", timeout=2) as answer:
                return int(answer.status) == 200
        except OSError:
            return False

    def call(self, method: str, path: str, body: object | None = None) -> Any:
        """Send an API request to the cell as administrator; return the decoded JSON. HTTPError for an error status."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"PRIVATE-TOKEN": ADMIN_TOKEN, "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def wait_until(self, probe: Callable[[], object], what: str, seconds: float = 60) -> None:
        """Wait until `probe` is true. Raises LabError with `what` and the last output after `seconds`."""
        try:
            wait_until(probe, what, seconds)
        except WaitError as error:
            raise LabError(f"{error}\n--- cell\n{self.cell.tail()}\n--- manager\n{self.manager.tail()}") from None
