"""Room on the agent's disk, and what is said of its errors."""

import errno
import os
from asyncio import Event, TaskGroup, sleep
from pathlib import Path

import pytest

from remuda.lib.clock import VirtualClock
from remuda.steps.job_files.disk import (
    RESERVE,
    ROOM_SECONDS,
    DiskSpace,
    Reserve,
    count_free,
    describe_error,
    has_room,
    shows_full_disk,
)


class Disk:
    def __init__(self) -> None:
        self.is_full = False
        self.clock = VirtualClock()
        self.room = DiskSpace(lambda folder: not self.is_full)

    async def wait(self) -> float:
        return await self.room.wait(Path("/"), self.clock)


async def test_a_wait_ends_when_there_is_room() -> None:
    disk = Disk()
    assert await disk.wait() == 0
    disk.is_full = True
    async with TaskGroup() as tasks:
        waiting = tasks.create_task(disk.wait())
        await disk.clock.advance(ROOM_SECONDS / 2)
        assert not waiting.done()
        disk.is_full = False
        await disk.clock.advance(2)
    assert 0 < waiting.result() <= ROOM_SECONDS / 2 + 2


async def test_no_wait_is_without_end() -> None:
    disk = Disk()
    disk.is_full = True
    async with TaskGroup() as tasks:
        waiting = tasks.create_task(disk.wait())
        await disk.clock.advance(ROOM_SECONDS + 2)
        assert waiting.done()
    # The next one has no more time; only room gives it back.
    assert await disk.wait() == 0
    disk.is_full = False
    await disk.wait()
    disk.is_full = True
    async with TaskGroup() as tasks:
        waiting = tasks.create_task(disk.wait())
        await disk.clock.advance(2)
        assert not waiting.done()
        disk.is_full = False
        await disk.clock.advance(2)


def test_a_folder_that_is_gone_is_not_short_of_room(tmp_path: Path) -> None:
    assert has_room(tmp_path)
    assert has_room(tmp_path / "none")


@pytest.mark.parametrize(
    ("blocks", "free", "available", "root", "others"),
    [
        (1000, 500, 500, 500, 500),  # a file system that keeps nothing back
        (6144, 122, 0, 0, 0),  # ext4 without blocks for root: nobody gets these
        (6144, 430, 0, 308, 0),  # ext4 with such blocks, which only root gets
        (10_000_000, 504_096, 0, 500_000, 0),
        (10_000_000, 604_096, 100_000, 600_000, 100_000),
        (10_000_000, 4000, 0, 0, 0),
    ],
)
def test_what_a_file_system_keeps_for_itself_is_not_free(
    blocks: int, free: int, available: int, root: int, others: int
) -> None:
    found = os.statvfs_result((4096, 4096, blocks, free, available, 0, 0, 0, 0, 255))
    assert count_free(found, is_root=True) == root
    assert count_free(found, is_root=False) == others


@pytest.mark.parametrize(
    ("error", "folder", "text"),
    [
        (
            OSError(errno.ENOENT, "No such file", "/x/log"),
            "none",
            "its folder {}/none is gone: somebody has removed it",
        ),
        (OSError(errno.ENOENT, "No such file", "/x/sh"), ".", "No such file: /x/sh"),
        (OSError(errno.ENOSPC, "No space left on device"), ".", "No space left on device"),
    ],
)
def test_causes(tmp_path: Path, error: OSError, folder: str, text: str) -> None:
    assert describe_error(error, tmp_path / folder) == text.format(tmp_path)


def test_a_reserve_is_given_back_once(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path)
    assert not reserve.release()
    reserve.hold()
    reserve.hold()
    held = sum(path.stat().st_blocks * 512 for path in (tmp_path / RESERVE).iterdir())
    assert held > 0
    assert reserve.release()
    assert not reserve.release()


@pytest.mark.parametrize("files", [{}, {"bytes": 0}, {"bytes": 4096}, {"0": 0, "1": 0}, {"0": 0, "bytes": 4096}])
def test_a_reserve_that_a_killed_agent_left_in_part_is_taken_anew(tmp_path: Path, files: dict[str, int]) -> None:
    whole = held_in(tmp_path / "whole")
    folder = tmp_path / "part" / RESERVE
    folder.mkdir(parents=True)
    for name, size in files.items():
        (folder / name).write_bytes(bytes(size))
    assert held_in(tmp_path / "part") == whole


def held_in(data: Path) -> tuple[int, set[str]]:
    """Size and files of the reserve that is held there now."""
    data.mkdir(exist_ok=True)
    Reserve(data).hold()
    size = (data / RESERVE / "bytes").stat().st_blocks * 512
    assert size > 0
    return size, {path.name for path in (data / RESERVE).iterdir()}


async def test_room_is_made_once_each_time_a_disk_becomes_full() -> None:
    disk, calls = Disk(), []

    async def relieve() -> None:
        calls.append(disk.clock.monotonic())
        disk.is_full = len(calls) == 2

    disk.room.relieve = relieve
    disk.is_full = True
    assert await disk.wait() == 0
    disk.is_full = True
    async with TaskGroup() as tasks:
        waiting = tasks.create_task(disk.wait())
        await disk.clock.advance(10)
        assert not waiting.done()
        disk.is_full = False
        await disk.clock.advance(2)
    assert len(calls) == 2
    disk.is_full = True
    await disk.room.look(Path("/"), disk.clock)
    assert len(calls) == 3


async def test_a_failed_write_shows_that_the_disk_was_full() -> None:
    disk, calls = Disk(), []

    async def relieve() -> None:
        calls.append(disk.clock.monotonic())

    disk.room.relieve = relieve
    assert await disk.room.wait(Path("/"), disk.clock) == 0
    assert calls == []
    assert await disk.room.wait(Path("/"), disk.clock, has_failed=True) == 0
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, ""), True),
        (OSError(errno.ENOSPC, "", "/data/jobs/1/log"), True),
        (OSError(errno.ENOSPC, "", b"/data/jobs/1/log"), True),
        (OSError(errno.ENOSPC, "", "/builds/1"), False),
        (OSError(errno.EFBIG, ""), False),
    ],
)
def test_which_errors_say_that_the_agents_disk_is_full(error: OSError, *, expected: bool) -> None:
    assert shows_full_disk(error, Path("/data/jobs/1")) is expected


async def test_space_that_appears_while_room_is_made_may_be_used_up_again() -> None:
    disk, is_made = Disk(), Event()

    async def relieve() -> None:
        disk.is_full = False
        await is_made.wait()

    disk.room.relieve = relieve
    disk.is_full = True
    async with TaskGroup() as tasks:
        tasks.create_task(disk.room.look(Path("/"), disk.clock))
        await sleep(0)
        waiting = tasks.create_task(disk.wait())
        await disk.clock.advance(5)
        assert not waiting.done()
        is_made.set()
        await disk.clock.advance(2)
    assert waiting.result() > 0


async def test_time_limits_hold_while_there_is_no_room() -> None:
    disk, looks = Disk(), []
    disk.is_full = True
    async with TaskGroup() as tasks:
        tasks.create_task(disk.room.wait(Path("/"), disk.clock, lambda: looks.append(1)))
        await disk.clock.advance(5)
        assert looks
        disk.is_full = False
        await disk.clock.advance(2)
