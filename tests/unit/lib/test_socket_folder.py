"""Socket folders of killed processes are removed; all others are kept."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.lib.socket_folder import LONGEST_FOLDER_BYTES, PREFIX, SocketFolder

KILLED_PROGRAM = (
    "import os, signal\nfrom pathlib import Path\nfrom remuda.lib.socket_folder import SocketFolder\n"
    "folder = SocketFolder()\nPath(folder.path, 'inner').mkdir()\nPath(folder.path, 'inner/socket').touch()\n"
    "print(folder.path, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
)


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def test_close_removes_the_folder(temporary_folder: Path) -> None:
    folder = SocketFolder()
    assert Path(folder.path).parent == temporary_folder
    Path(folder.path, "socket").touch()
    folder.close()
    folder.close()
    assert list(temporary_folder.iterdir()) == []


def test_a_new_folder_removes_that_of_a_killed_process(temporary_folder: Path) -> None:
    alive = SocketFolder()
    command = [sys.executable, "-c", KILLED_PROGRAM]
    orphan = Path(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.strip())
    assert orphan.parent == temporary_folder
    assert (orphan / "inner/socket").exists()
    other, link = temporary_folder / "other", temporary_folder / f"{PREFIX}link"
    other.mkdir()
    link.symlink_to(other)
    (temporary_folder / f"{PREFIX}file").touch()
    folder = SocketFolder()
    assert not orphan.exists()
    assert {alive.path, folder.path, str(other), str(link)} < {str(path) for path in temporary_folder.iterdir()}
    alive.close()
    folder.close()


def test_a_long_temporary_folder_is_not_used(temporary_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = temporary_folder / ("x" * LONGEST_FOLDER_BYTES)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    folder = SocketFolder()
    try:
        assert Path(folder.path).parent == Path("/tmp")
    finally:
        folder.close()
