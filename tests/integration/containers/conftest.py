"""Fixtures: a real Docker engine, and a job that runs the container steps as the step runner does."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

PROGRAM = [sys.executable, "-m", "remuda.stdsteps"]


@dataclass(slots=True)
class ProgramResult:
    """Exit code, output text (stdout and stderr) and step outputs of a program."""

    code: int
    text: str
    outputs: dict[str, Any] = field(default_factory=dict)


class Job:
    """The folders of one job, and its steps."""

    def __init__(self, folder: Path, host: str) -> None:
        self.work, self.exchange, self._private = folder / "work", folder / "exchange", folder / "private"
        self.host = host
        for path in (self.work, self.exchange, self._private):
            path.mkdir(parents=True)
        self.env: dict[str, str] = {}
        self.environment = "1/container/1"
        self._count = 0

    @property
    def failure(self) -> dict[str, Any] | None:
        """The content of the failure file, which the last exec wrote for a failure of the platform."""
        path = self._private / "failure"
        content: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
        return content

    def step(self, program: str, **inputs: Any) -> ProgramResult:
        return self.step_as(None, program, **inputs)

    def step_as(self, uid: int | None, program: str, **inputs: Any) -> ProgramResult:
        """Run a step as the user with this uid; None is the user of the test."""
        self._count += 1
        inputs_file, outputs_file = self._private / f"{self._count}.inputs", self._private / f"{self._count}.outputs"
        inputs_file.write_text(json.dumps({"engine": self.host} | inputs))
        env = self._env() | {"REMUDA_INPUTS": str(inputs_file), "REMUDA_OUTPUTS": str(outputs_file)}
        inputs_file.chmod(0o644)
        # Another user may not be able to read this Python, so it becomes that user when everything is imported.
        become = f"os.setgroups([]); os.setgid({uid}); os.setuid({uid})" if uid else ""
        text = (
            "import os, sys; from remuda.stdsteps.__main__ import import_step, main; "
            f"import_step({program!r}); {become or 'pass'}"
        )
        command = [sys.executable, "-c", f"{text}; sys.exit(main([{program!r}]))"]
        process = subprocess.run(command, cwd=self.work, env=env, capture_output=True, text=True, timeout=100)
        lines = [json.loads(line) for line in outputs_file.read_text().splitlines()] if outputs_file.exists() else []
        return ProgramResult(
            process.returncode, process.stdout + process.stderr, {line["name"]: line["value"] for line in lines}
        )

    def open(self, image: str = BUSYBOX, **inputs: Any) -> ProgramResult:
        return self.step("container_open", image=image, **{"pull_policy": ["never"]} | inputs)

    def close(self, image: str = BUSYBOX, **inputs: Any) -> ProgramResult:
        return self.step("container_close", image=image, **inputs)

    def begin(self, opened: ProgramResult, *command: str, **env: str) -> subprocess.Popen[str]:
        """Start a command in an open environment."""
        assert opened.code == 0, opened.text
        prefix = opened.outputs["environment"]["exec"]
        assert prefix[0] == "remuda-step"
        self._count += 1
        request = self.exchange / f"{self._count}.json"
        request.write_text(json.dumps({"command": command, "work_dir": str(self.work), "env": env}))
        program = [*PROGRAM, *prefix[1:], str(request)]
        with tempfile.TemporaryFile() as empty:
            return subprocess.Popen(
                program, cwd=self.work, env=self._env(), stdin=empty, stdout=-1, stderr=subprocess.STDOUT, text=True
            )

    def run(self, opened: ProgramResult, *command: str, **env: str) -> ProgramResult:
        """Run a command in an open environment and wait for its end."""
        with self.begin(opened, *command, **env) as process:
            text, _ = process.communicate(timeout=100)
        return ProgramResult(process.returncode, text)

    def _env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._private),
            "REMUDA_EXCHANGE": str(self.exchange),
            "REMUDA_ENVIRONMENT": self.environment,
            "REMUDA_FAILURE": str(self._private / "failure"),
            "CI_JOB_ID": "1",
        } | self.env


@pytest.fixture
def new_job(tmp_path: Path) -> Callable[..., Job]:
    """Create a job that has separate folders for each name."""

    def create(engine: DockerEngine, name: str = "1") -> Job:
        return Job(tmp_path / name, engine.host)

    return create


@pytest.fixture
def job(engine: DockerEngine, new_job: Callable[..., Job]) -> Job:
    created: Job = new_job(engine)
    return created


@pytest.fixture
def terminate() -> Callable[[subprocess.Popen[str]], str]:
    """Send SIGTERM to a program and return the rest of its output."""

    def send_and_read(process: subprocess.Popen[str]) -> str:
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=60)
        return text

    return send_and_read
