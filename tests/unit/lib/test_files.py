"""A file is there as a whole or as it was; a lock is one process's."""

import os
import stat
from pathlib import Path

import pytest

from remuda.lib.files import InUseError, sole_use, write_whole


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_and_private(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_text("old and longer")
    write_whole(path, b"new", durable=durable)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        write_whole(tmp_path / "folder", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with sole_use(lock), pytest.raises(InUseError) as caught, sole_use(lock):
        pass
    assert caught.value.holder == str(os.getpid())
    with sole_use(lock):
        assert lock.read_text() == f"{os.getpid()}\n"


def test_a_lock_outlives_no_process(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    child = os.fork()
    if child == 0:
        with sole_use(lock):
            os._exit(0)
    os.waitpid(child, 0)
    with sole_use(lock):
        pass
