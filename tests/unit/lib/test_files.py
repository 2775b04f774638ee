"""A file is there as a whole or as it was; a lock is one process's."""

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


def test_what_cannot_be_written_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        write_whole(tmp_path / "folder", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


SYNCING = """
import os, sys
from pathlib import Path
from remuda.lib.files import disable_sync, is_sync_enabled, sync_folder, write_whole
synced = []
os.fsync = synced.append
if sys.argv[2] == "forgone":
    disable_sync()
write_whole(Path(sys.argv[1]) / "file", b"text", durable=True)
sync_folder(Path(sys.argv[1]))
print(is_sync_enabled(), len(synced))
"""


@pytest.mark.parametrize(("how", "told"), [("kept", "True 3"), ("forgone", "False 0")])
def test_a_process_whose_files_end_with_it_does_not_wait_for_the_disk(tmp_path: Path, how: str, told: str) -> None:
    command = [sys.executable, "-c", SYNCING, str(tmp_path), how]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == told
    assert (tmp_path / "file").read_bytes() == b"text"


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with hold_lock(lock), pytest.raises(InUseError) as caught, hold_lock(lock):
        pass
    assert caught.value.holder == str(os.getpid())
    with hold_lock(lock):
        assert lock.read_text() == f"{os.getpid()}\n"


def test_a_lock_outlives_no_process(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    child = os.fork()
    if child == 0:
        with hold_lock(lock):
            os._exit(0)
    os.waitpid(child, 0)
    with hold_lock(lock):
        pass


def test_a_shared_lock_is_held_alone_until_it_is_shared(tmp_path: Path) -> None:
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


async def test_processes_take_turns(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    held = asyncio.Event()
    order: list[str] = []

    async def second() -> None:
        await held.wait()
        async with wait_for_lock(lock):
            order.append("second")

    async with asyncio.TaskGroup() as group:
        group.create_task(second())
        async with wait_for_lock(lock):
            held.set()
            for _ in range(10):
                await asyncio.sleep(0)
            order.append("first")
    assert order == ["first", "second"]
    async with wait_for_lock(tmp_path / "nowhere" / "lock"):
        order.append("a folder that is not there holds nobody up")
