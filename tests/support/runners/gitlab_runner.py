"""Drives a real gitlab-runner program as an operator would: register, run, stop.

For tests against peers (`make interop`); which program it is, is the caller's business.
"""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path


class RealRunner:
    """A gitlab-runner with a configuration of its own; one process runs all runners that are in it."""

    def __init__(self, program: Path, folder: Path, *, url: str, registration_token: str, concurrent: int = 4) -> None:
        self._program = program
        self.folder = folder
        self.config = folder / "config.toml"
        self._url = url
        self._registration_token = registration_token
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        (folder / "work").mkdir()
        self.config.write_text(f"concurrent = {concurrent}\ncheck_interval = 1\n")

    def call(self, *arguments: str) -> str:
        """One command; what it says, on both channels."""
        done = subprocess.run(
            [self._program, *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        return said

    def register(self, name: str, *options: str) -> str:
        """Register with the shell executor; the runner's own token."""
        said = self.call(
            *("register", "--non-interactive", "--config", str(self.config), "--url", self._url),
            *("--registration-token", self._registration_token, "--name", name, "--executor", "shell", *options),
        )
        assert "Runner registered successfully" in said
        tokens: list[str] = re.findall(r'^ *token = "(.+)"', self.config.read_text(), re.MULTILINE)
        return tokens[-1]

    def start(self) -> None:
        """Begin to ask for jobs."""
        with (self.folder / "runner.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, "run", "--config", self.config, "--working-directory", self.folder / "work"],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End the process; jobs that it has are given up."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(5)

    def log(self) -> str:
        """What the process said."""
        return (self.folder / "runner.log").read_text(errors="replace")

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
