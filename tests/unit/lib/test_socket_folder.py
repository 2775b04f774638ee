"""Folders of processes that were killed go; all others stay."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.lib.socket_folder import LONGEST_FOLDER_BYTES, PREFIX, SocketFolder

KILLED = (
    "import os, signal\nfrom pathlib import Path\nfrom remuda.lib.socket_folder import SocketFolder\n"
    "folder = SocketFolder()\nPath(folder.path, 'inner').mkdir()\nPath(folder.path, 'inner/socket').touch()\n"
    "print(folder.path, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def test_it_goes_when_it_is_closed(room: Path) -> None:
    folder = SocketFolder()
    assert Path(folder.path).parent == room
    Path(folder.path, "socket").touch()
    folder.close()
    folder.close()
    assert list(room.iterdir()) == []


def test_the_next_one_removes_that_of_a_process_that_was_killed(room: Path) -> None:
    alive = SocketFolder()
    killed = subprocess.run([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, check=False).stdout
    left = Path(killed.strip())
    assert left.parent == room
    assert (left / "inner/socket").exists()
    other, elsewhere = room / "other", room / f"{PREFIX}link"
    other.mkdir()
    elsewhere.symlink_to(other)
    (room / f"{PREFIX}file").touch()
    folder = SocketFolder()
    assert not left.exists()
    assert {alive.path, folder.path, str(other), str(elsewhere)} < {str(one) for one in room.iterdir()}
    for one in (alive, folder):
        one.close()


def test_a_long_path_is_avoided(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = room / ("x" * LONGEST_FOLDER_BYTES)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    folder = SocketFolder()
    try:
        assert Path(folder.path).parent == Path("/tmp")
    finally:
        folder.close()
