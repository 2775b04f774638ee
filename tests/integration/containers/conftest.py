"""A real engine, and the programs of the container steps as the step runner would start them."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DEBIAN, DockerEngine, debian_files

PROGRAM = [sys.executable, "-m", "remuda.stdsteps"]


@dataclass(slots=True)
class Ended:
    """How a program ended, and what it said."""

    code: int
    text: str
    outputs: dict[str, Any] = field(default_factory=dict)


class Job:
    """The folders of one job, and its steps."""

    def __init__(self, folder: Path, host: str) -> None:
        self.work, self.exchange, self._private = folder / "work", folder / "exchange", folder / "private"
        self.host = host
        for one in (self.work, self.exchange, self._private):
            one.mkdir(parents=True)
        self.env: dict[str, str] = {}
        self.environment = "1/container/1"
        self._count = 0

    @property
    def failure(self) -> dict[str, Any] | None:
        """What the last exec told of the platform's failure."""
        path = self._private / "failure"
        found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
        return found

    def step(self, program: str, **inputs: Any) -> Ended:
        """Run a step from beginning to end."""
        return self.step_as(None, program, **inputs)

    def step_as(self, uid: int | None, program: str, **inputs: Any) -> Ended:
        """The same as another user."""
        self._count += 1
        given, told = self._private / f"{self._count}.inputs", self._private / f"{self._count}.outputs"
        given.write_text(json.dumps({"engine": self.host} | inputs))
        env = self._env() | {"REMUDA_INPUTS": str(given), "REMUDA_OUTPUTS": str(told)}
        given.chmod(0o644)
        # Another user may not be able to read this Python, so it becomes that user when everything is imported.
        become = f"os.setgroups([]); os.setgid({uid}); os.setuid({uid})" if uid else ""
        text = (
            "import os, sys; from remuda.stdsteps.__main__ import import_step, main; "
            f"import_step({program!r}); {become or 'pass'}"
        )
        words = [sys.executable, "-c", f"{text}; sys.exit(main([{program!r}]))"]
        done = subprocess.run(words, cwd=self.work, env=env, capture_output=True, text=True, timeout=100)
        lines = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
        return Ended(done.returncode, done.stdout + done.stderr, {one["name"]: one["value"] for one in lines})

    def open(self, image: str = BUSYBOX, **inputs: Any) -> Ended:
        return self.step("container_open", image=image, **{"pull_policy": ["never"]} | inputs)

    def close(self, image: str = BUSYBOX, **inputs: Any) -> Ended:
        return self.step("container_close", image=image, **inputs)

    def begin(self, opened: Ended, *command: str, **env: str) -> subprocess.Popen[str]:
        """Start a command in an environment that was opened."""
        assert opened.code == 0, opened.text
        prefix = opened.outputs["environment"]["exec"]
        assert prefix[0] == "remuda-step"
        self._count += 1
        request = self.exchange / f"{self._count}.json"
        request.write_text(json.dumps({"command": command, "work_dir": str(self.work), "env": env}))
        words = [*PROGRAM, *prefix[1:], str(request)]
        with tempfile.TemporaryFile() as nothing:
            return subprocess.Popen(
                words, cwd=self.work, env=self._env(), stdin=nothing, stdout=-1, stderr=subprocess.STDOUT, text=True
            )

    def run(self, opened: Ended, *command: str, **env: str) -> Ended:
        """Run a command in an environment that was opened."""
        with self.begin(opened, *command, **env) as process:
            text, _ = process.communicate(timeout=100)
        return Ended(process.returncode, text)

    def _env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._private),
            "REMUDA_EXCHANGE": str(self.exchange),
            "REMUDA_ENVIRONMENT": self.environment,
            "REMUDA_FAILURE": str(self._private / "failure"),
            "CI_JOB_ID": "1",
        } | self.env


@pytest.fixture(scope="session")
def engine_of_the_session() -> Iterator[DockerEngine]:
    """One engine for all tests that only use it."""
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    with DockerEngine() as engine:
        engine.add_image(DEBIAN, debian_files(), 'CMD ["bash"]')
        yield engine


@pytest.fixture
def engine(engine_of_the_session: DockerEngine) -> Iterator[DockerEngine]:
    """The same, empty again after each test."""
    yield engine_of_the_session
    engine_of_the_session.clear()


@pytest.fixture
def own_engine() -> Iterator[DockerEngine]:
    """One that a test may kill."""
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    with DockerEngine() as engine:
        yield engine


@pytest.fixture
def new_job(tmp_path: Path) -> Callable[..., Job]:
    """Jobs with folders of their own, by name."""
    return lambda engine, name="1": Job(tmp_path / name, engine.host)


@pytest.fixture
def job(engine: DockerEngine, new_job: Callable[..., Job]) -> Job:
    found: Job = new_job(engine)
    return found


@pytest.fixture
def end_politely() -> Callable[[subprocess.Popen[str]], str]:
    """SIGTERM to a program; what it had printed."""

    def end(process: subprocess.Popen[str]) -> str:
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=60)
        return text

    return end
