"""Free space on the agent's disk: waiting for it, the reserve, and error messages."""

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
        self.space = DiskSpace(lambda folder: not self.is_full)

    async def wait(self) -> float:
        return await self.space.wait(Path("/"), self.clock)


async def test_a_wait_ends_when_there_is_free_space() -> None:
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


async def test_the_wait_is_limited() -> None:
    disk = Disk()
    disk.is_full = True
    async with TaskGroup() as tasks:
        waiting = tasks.create_task(disk.wait())
        await disk.clock.advance(ROOM_SECONDS + 2)
        assert waiting.done()
    # The next wait has no time left, until there has been free space again.
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


def test_a_missing_folder_counts_as_having_space(tmp_path: Path) -> None:
    assert has_room(tmp_path)
    assert has_room(tmp_path / "none")


@pytest.mark.parametrize(
    ("blocks", "free", "available", "root", "others"),
    [
        (1000, 500, 500, 500, 500),  # a file system that reserves nothing
        (6144, 122, 0, 0, 0),  # ext4 without blocks for root: these blocks are for nobody
        (6144, 430, 0, 308, 0),  # ext4 with blocks that only root can use
        (10_000_000, 504_096, 0, 500_000, 0),
        (10_000_000, 604_096, 100_000, 600_000, 100_000),
        (10_000_000, 4000, 0, 0, 0),
    ],
)
def test_reserved_file_blocks_are_not_free(blocks: int, free: int, available: int, root: int, others: int) -> None:
    status = os.statvfs_result((4096, 4096, blocks, free, available, 0, 0, 0, 0, 255))
    assert count_free(status, is_root=True) == root
    assert count_free(status, is_root=False) == others


@pytest.mark.parametrize(
    ("error", "folder", "expected"),
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
def test_descriptions_of_errors(tmp_path: Path, error: OSError, folder: str, expected: str) -> None:
    assert describe_error(error, tmp_path / folder) == expected.format(tmp_path)


def test_a_reserve_is_released_once(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path)
    assert not reserve.release()
    reserve.hold()
    reserve.hold()
    size = sum(path.stat().st_blocks * 512 for path in (tmp_path / RESERVE).iterdir())
    assert size > 0
    assert reserve.release()
    assert not reserve.release()


@pytest.mark.parametrize("files", [{}, {"bytes": 0}, {"bytes": 4096}, {"0": 0, "1": 0}, {"0": 0, "bytes": 4096}])
def test_an_incomplete_reserve_of_a_killed_agent_is_completed(tmp_path: Path, files: dict[str, int]) -> None:
    whole = hold_reserve(tmp_path / "whole")
    folder = tmp_path / "part" / RESERVE
    folder.mkdir(parents=True)
    for name, size in files.items():
        (folder / name).write_bytes(bytes(size))
    assert hold_reserve(tmp_path / "part") == whole


def hold_reserve(data: Path) -> tuple[int, set[str]]:
    """Create the reserve in a folder. Returns its size and its files."""
    data.mkdir(exist_ok=True)
    Reserve(data).hold()
    size = (data / RESERVE / "bytes").stat().st_blocks * 512
    assert size > 0
    return size, {path.name for path in (data / RESERVE).iterdir()}


async def test_space_is_freed_once_each_time_the_disk_becomes_full() -> None:
    disk, calls = Disk(), []

    async def relieve() -> None:
        calls.append(disk.clock.monotonic())
        disk.is_full = len(calls) == 2

    disk.space.relieve = relieve
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
    await disk.space.look(Path("/"), disk.clock)
    assert len(calls) == 3


async def test_a_failed_write_shows_that_the_disk_was_full() -> None:
    disk, calls = Disk(), []

    async def relieve() -> None:
        calls.append(disk.clock.monotonic())

    disk.space.relieve = relieve
    assert await disk.space.wait(Path("/"), disk.clock) == 0
    assert calls == []
    assert await disk.space.wait(Path("/"), disk.clock, has_failed=True) == 0
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
def test_errors_that_show_a_full_disk_of_the_agent(error: OSError, *, expected: bool) -> None:
    assert shows_full_disk(error, Path("/data/jobs/1")) is expected


async def test_a_wait_does_not_end_before_freeing_space_is_complete() -> None:
    disk, relieved = Disk(), Event()

    async def relieve() -> None:
        disk.is_full = False
        await relieved.wait()

    disk.space.relieve = relieve
    disk.is_full = True
    async with TaskGroup() as tasks:
        tasks.create_task(disk.space.look(Path("/"), disk.clock))
        await sleep(0)
        waiting = tasks.create_task(disk.wait())
        await disk.clock.advance(5)
        assert not waiting.done()
        relieved.set()
        await disk.clock.advance(2)
    assert waiting.result() > 0


async def test_time_limits_are_checked_during_a_wait() -> None:
    disk, checks = Disk(), []
    disk.is_full = True
    async with TaskGroup() as tasks:
        tasks.create_task(disk.space.wait(Path("/"), disk.clock, lambda: checks.append(1)))
        await disk.clock.advance(5)
        assert checks
        disk.is_full = False
        await disk.clock.advance(2)
