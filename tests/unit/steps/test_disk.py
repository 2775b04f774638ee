"""Room on the agent's disk, and what is said of its errors."""

import errno
from asyncio import TaskGroup
from pathlib import Path

import pytest

from remuda.lib.clock import VirtualClock
from remuda.steps.disk import ROOM_SECONDS, Room, cause_of, has_room


class Disk:
    def __init__(self) -> None:
        self.is_full = False
        self.clock = VirtualClock()
        self.room = Room(lambda folder: not self.is_full)

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
    assert cause_of(error, tmp_path / folder) == text.format(tmp_path)
