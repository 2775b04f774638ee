"""The `remuda` command as a process, in a world of its own, and the check that it leaves nothing behind."""

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

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@dataclass
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class World:
    """A home and a folder for temporary files that only this test's commands know."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    program: tuple[str | Path, ...] = (sys.executable, "-m", "remuda")

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def environment(self, **more: str) -> dict[str, str]:
        dropped = ("GIT_", "REMUDA_", "CI")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return (
            clean | {"HOME": str(self.folder), "TMPDIR": str(self.temporary), "XDG_DATA_HOME": str(self.folder)} | more
        )

    def start(self, *arguments: str | Path, cwd: Path | None = None, **more: str) -> subprocess.Popen[bytes]:
        """Start a command and come back at once."""
        process = subprocess.Popen(
            [*map(str, (*self.program, *arguments))],
            cwd=cwd or self.folder,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def start_on(self, terminal: int, *arguments: str | Path, **more: str) -> subprocess.Popen[bytes]:
        """Start a command on a terminal."""
        process = subprocess.Popen(
            [*map(str, (*self.program, *arguments))],
            cwd=self.folder,
            env=self.environment(TERM="xterm", **more),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def remuda(self, *arguments: str | Path, cwd: Path | None = None, **more: str) -> Result:
        """Run a command to its end."""
        return ended(self.start(*arguments, cwd=cwd, **more))

    def processes(self) -> list[str]:
        """Command lines of all processes that live in this world; their environment tells."""
        mark = f"TMPDIR={self.temporary}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return found

    def is_empty(self) -> bool:
        return not self.processes() and not list(self.temporary.iterdir())


def ended(process: subprocess.Popen[bytes], seconds: float = 60) -> Result:
    """Wait for a command's end."""
    out, err = process.communicate(timeout=seconds)
    return Result(process.returncode, out.decode(), err.decode())


@pytest.fixture
def world() -> Iterator[World]:
    # Not below pytest's own folder: a socket's path must stay short.
    folder = Path(tempfile.mkdtemp(prefix="rt-"))
    (folder / "tmp").mkdir()
    made = World(folder)
    try:
        yield made
        assert made.processes() == []
    finally:
        for process in made.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def finish() -> Callable[..., Result]:
    return ended


@pytest.fixture
def examples() -> Path:
    return EXAMPLES


@pytest.fixture
def pipeline(world: World) -> Callable[[str], Path]:
    """Make a folder with a pipeline file."""
    numbers = iter(range(100))

    def make(text: str) -> Path:
        folder = world.folder / f"project-{next(numbers)}"
        folder.mkdir()
        (folder / ".gitlab-ci.yml").write_text(text)
        return folder

    return make
