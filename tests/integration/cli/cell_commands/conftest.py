"""A cell in its own process, and a function that calls the `remuda` command with the administrator's token."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.cells.cell_process import CellProcess
from tests.support.cells.served_cell import ADMIN_TOKEN

from remuda.cli.exits import describe
from remuda.cli.main import call


class Result:
    """Exit code and output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"<{self.code} {self.out!r} {self.err!r}>"


Remuda = Callable[..., Result]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CellProcess]:
    with CellProcess(tmp_path_factory.mktemp("cell") / "data") as process:
        yield process


@pytest.fixture
def remuda(
    cell: CellProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Remuda:
    """A function that calls a command in an empty folder, as the entry point does, with an own home. `stdin`: its
    text; `variables`: changes to the environment, which names the cell and the administrator's token."""
    for name in [name for name in os.environ if name.startswith(("REMUDA_", "GIT_", "CI"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("REMUDA_URL", cell.url)
    monkeypatch.setenv("REMUDA_TOKEN", ADMIN_TOKEN)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | int | Path, stdin: str = "", **variables: str | None) -> Result:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                if value is None:
                    patch.delenv(name, raising=False)
                else:
                    patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            capfd.readouterr()
            error = ""
            try:
                code = call([str(word) for word in arguments])
            except SystemExit as end:
                code = int(end.code or 0)
            except Exception as raised:  # noqa: BLE001 - `main` does the same
                error, code = describe(raised)
            sys.stdout.flush()
            out, err = capfd.readouterr()
            return Result(int(code), out, err + error)

    return run


@pytest.fixture
def shop(cell: CellProcess) -> Callable[..., str]:
    """A function that makes a project with a pipeline file, and returns its path."""
    numbers = iter(range(100))

    def make(pipeline_file: str = "", **files: str) -> str:
        name = f"shop-{os.urandom(3).hex()}-{next(numbers)}"
        cell.new_project(name, pipeline_file, **files)
        return f"root/{name}"

    return make
