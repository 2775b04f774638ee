"""Atomic replacement of files, and lock files."""

import asyncio
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from remuda.lib.files import InUseError, hold_lock, hold_shareable_lock, wait_for_lock, write_whole


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_and_private(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_text("old and longer")
    write_whole(path, b"new", durable=durable)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / f".file.{os.getpid()}-{threading.get_ident()}.new").symlink_to("elsewhere")
    (tmp_path / "file").symlink_to("elsewhere")
    write_whole(tmp_path / "file", b"new")
    assert ((tmp_path / "file").read_text(), (tmp_path / "file").is_symlink()) == ("new", False)
    assert (tmp_path / "elsewhere").read_text() == "kept"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failed_write_leaves_no_new_file(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        write_whole(tmp_path / "folder", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


SYNC_PROGRAM = """
import os, sys
from pathlib import Path
from remuda.lib.files import disable_sync, is_sync_enabled, sync_folder, write_whole
synced = []
os.fsync = synced.append
if sys.argv[2] == "disabled":
    disable_sync()
write_whole(Path(sys.argv[1]) / "file", b"text", durable=True)
sync_folder(Path(sys.argv[1]))
print(is_sync_enabled(), len(synced))
"""


@pytest.mark.parametrize(("sync", "expected"), [("enabled", "True 3"), ("disabled", "False 0")])
def test_files_are_not_synced_if_sync_is_disabled(tmp_path: Path, sync: str, expected: str) -> None:
    command = [sys.executable, "-c", SYNC_PROGRAM, str(tmp_path), sync]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == expected
    assert (tmp_path / "file").read_bytes() == b"text"


def test_a_lock_names_its_holder_and_can_be_taken_after_its_release(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with hold_lock(lock), pytest.raises(InUseError) as caught, hold_lock(lock):
        pass
    assert caught.value.holder == str(os.getpid())
    with hold_lock(lock):
        assert lock.read_text() == f"{os.getpid()}\n"


def test_a_lock_is_released_when_its_process_ends(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    child = os.fork()
    if child == 0:
        with hold_lock(lock):
            os._exit(0)
    os.waitpid(child, 0)
    with hold_lock(lock):
        pass


def test_a_shareable_lock_is_exclusive_until_it_is_shared(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with hold_shareable_lock(lock) as first:
        with pytest.raises(InUseError) as caught, hold_shareable_lock(lock, patience_seconds=0):
            pass
        assert caught.value.holder == str(os.getpid())
        first.share()
        with hold_shareable_lock(lock, patience_seconds=0), pytest.raises(InUseError), hold_lock(lock):
            pass
    with hold_lock(lock), pytest.raises(InUseError), hold_shareable_lock(lock, patience_seconds=0):
        pass


async def test_wait_for_lock_waits_for_the_release(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    is_locked = asyncio.Event()
    order: list[str] = []

    async def second() -> None:
        await is_locked.wait()
        async with wait_for_lock(lock):
            order.append("second")

    async with asyncio.TaskGroup() as group:
        group.create_task(second())
        async with wait_for_lock(lock):
            is_locked.set()
            for _ in range(10):
                await asyncio.sleep(0)
            order.append("first")
    assert order == ["first", "second"]
    async with wait_for_lock(tmp_path / "nowhere" / "lock"):
        order.append("no wait if the folder does not exist")
