"""Those who ask at the same time are answered together; alone, nobody waits."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from remuda.cell.store.postgres.read_batching import ReadBatcher
from remuda.lib.clock import settle


class Table:
    """Squares, read when the test lets them be."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.gate = asyncio.Event()
        self.fails = False
        self.shift = 0

    async def fetch(self, keys: Sequence[int]) -> Mapping[int, int]:
        self.asked.append(list(keys))
        shift = self.shift
        await self.gate.wait()
        if self.fails:
            self.fails = False
            raise OSError("the connection is lost")
        return {key: key * key + shift for key in keys if key >= 0}


async def test_alone() -> None:
    table = Table()
    table.gate.set()
    gathered = ReadBatcher(table.fetch)
    assert await gathered.get(3) == 9
    assert await gathered.get(-3) is None
    assert table.asked == [[3], [-3]]


async def test_whoever_comes_meanwhile_is_in_the_next_statement() -> None:
    table = Table()
    gathered = ReadBatcher(table.fetch)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(gathered.get(1))
        await settle()
        table.shift = 100
        others = [group.create_task(gathered.get(key)) for key in (1, 2, 3, 2)]
        await settle()
        assert table.asked == [[1]]
        table.gate.set()
    assert first.result() == 1
    assert [task.result() for task in others] == [101, 104, 109, 104]
    assert table.asked == [[1], [1, 2, 3]]


async def test_a_failure_is_the_leaders_own() -> None:
    table = Table()
    gathered = ReadBatcher(table.fetch)
    table.fails = True
    async with asyncio.TaskGroup() as group:
        first = group.create_task(gathered.get(1))
        await settle()
        leader = group.create_task(gathered.get(2))
        follower = group.create_task(gathered.get(3))
        await settle()
        leader.cancel()
        first.cancel()
        await settle()
        table.fails = False
        table.gate.set()
    assert follower.result() == 9
    table.fails = True
    with pytest.raises(OSError, match="lost"):
        await gathered.get(4)
    assert await gathered.get(4) == 16
