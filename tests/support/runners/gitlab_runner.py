"""Runs a real gitlab-runner program: register, run, stop. For the interop tests; the caller passes the program."""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path


class RealRunner:
    """A gitlab-runner with its own configuration file; one process runs all runners of the file."""

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
        """Run a command of the program, which must succeed. Returns its stdout and stderr."""
        done = subprocess.run(
            [self._program, *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        return output

    def register(self, name: str, *options: str) -> str:
        """Register a runner with the shell executor. Returns its token."""
        output = self.call(
            *("register", "--non-interactive", "--config", str(self.config), "--url", self._url),
            *("--registration-token", self._registration_token, "--name", name, "--executor", "shell", *options),
        )
        assert "Runner registered successfully" in output
        tokens: list[str] = re.findall(r'^ *token = "(.+)"', self.config.read_text(), re.MULTILINE)
        return tokens[-1]

    def start(self) -> None:
        """Start `gitlab-runner run`."""
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
        """Stop the process; its jobs are aborted."""
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
        """Log of the process."""
        return (self.folder / "runner.log").read_text(errors="replace")

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
