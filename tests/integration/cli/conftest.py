"""Runs the `remuda` command as a process with its own home folder; checks that no process is left after each test."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@dataclass
class Result:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str
    jobs: dict[str, Any] = field(default_factory=dict)
    """The jobs of a run by their names, if the output is JSON."""


@dataclass
class World:
    """Starts commands with a home folder and a folder for temporary files that only this test uses."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    program: tuple[str | Path, ...] = (sys.executable, "-m", "remuda")

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def environment(self, **variables: str) -> dict[str, str]:
        dropped = ("GIT_", "REMUDA_", "CI")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return (
            clean
            | {"HOME": str(self.folder), "TMPDIR": str(self.temporary), "XDG_DATA_HOME": str(self.folder)}
            | {"XDG_CONFIG_HOME": str(self.folder / ".config")}
            | variables
        )

    def start(self, *arguments: str | Path, cwd: Path | None = None, **variables: str) -> subprocess.Popen[bytes]:
        """Start a command; do not wait for its end."""
        process = subprocess.Popen(
            [*map(str, (*self.program, *arguments))],
            cwd=cwd or self.folder,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def start_on(self, terminal: int, *arguments: str | Path, **variables: str) -> subprocess.Popen[bytes]:
        """Start a command with a terminal as stdin, stdout and stderr."""
        process = subprocess.Popen(
            [*map(str, (*self.program, *arguments))],
            cwd=self.folder,
            env=self.environment(TERM="xterm", **variables),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def remuda(self, *arguments: str | Path, cwd: Path | None = None, **variables: str) -> Result:
        """Run a command and wait for its end."""
        return wait_for_result(self.start(*arguments, cwd=cwd, **variables))

    def processes(self) -> list[str]:
        """Return the command lines of all processes that have this test's TMPDIR in their environment."""
        variable = f"TMPDIR={self.temporary}".encode()
        command_lines = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if variable in (process / "environ").read_bytes().split(b"\0"):
                    command_lines.append(
                        (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    )
        return command_lines

    def is_empty(self) -> bool:
        return not self.processes() and not list(self.temporary.iterdir())


def wait_for_result(process: subprocess.Popen[bytes], seconds: float = 60) -> Result:
    out, err = process.communicate(timeout=seconds)
    return Result(process.returncode, out.decode(), err.decode())


@pytest.fixture
def world() -> Iterator[World]:
    # Not below pytest's own folder, because the path of a socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="rt-"))
    (folder / "tmp").mkdir()
    world = World(folder)
    try:
        yield world
        assert world.processes() == []
    finally:
        for process in world.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def finish() -> Callable[..., Result]:
    return wait_for_result


@pytest.fixture
def examples() -> Path:
    return EXAMPLES


@pytest.fixture
def pipeline(world: World) -> Callable[[str], Path]:
    """A function that makes a folder with this pipeline file, and returns the folder."""
    numbers = iter(range(100))

    def make(text: str) -> Path:
        folder = world.folder / f"project-{next(numbers)}"
        folder.mkdir()
        (folder / ".gitlab-ci.yml").write_text(text)
        return folder

    return make
