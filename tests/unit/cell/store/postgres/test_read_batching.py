"""Batched reads: concurrent reads share a statement, and a single read does not wait."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from remuda.cell.store.postgres.read_batching import ReadBatcher
from remuda.lib.clock import settle


class Table:
    """Returns squares when the test opens the gate."""

    def __init__(self) -> None:
        self.fetched: list[list[int]] = []
        self.gate = asyncio.Event()
        self.fails = False
        self.shift = 0

    async def fetch(self, keys: Sequence[int]) -> Mapping[int, int]:
        self.fetched.append(list(keys))
        shift = self.shift
        await self.gate.wait()
        if self.fails:
            self.fails = False
            raise OSError("the connection is lost")
        return {key: key * key + shift for key in keys if key >= 0}


async def test_single_reads_are_not_batched() -> None:
    table = Table()
    table.gate.set()
    batcher = ReadBatcher(table.fetch)
    assert await batcher.get(3) == 9
    assert await batcher.get(-3) is None
    assert table.fetched == [[3], [-3]]


async def test_reads_during_a_statement_share_the_next_one() -> None:
    table = Table()
    batcher = ReadBatcher(table.fetch)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(batcher.get(1))
        await settle()
        table.shift = 100
        others = [group.create_task(batcher.get(key)) for key in (1, 2, 3, 2)]
        await settle()
        assert table.fetched == [[1]]
        table.gate.set()
    assert first.result() == 1
    assert [task.result() for task in others] == [101, 104, 109, 104]
    assert table.fetched == [[1], [1, 2, 3]]


async def test_an_error_or_a_cancel_of_the_leader_does_not_fail_others() -> None:
    table = Table()
    batcher = ReadBatcher(table.fetch)
    table.fails = True
    async with asyncio.TaskGroup() as group:
        first = group.create_task(batcher.get(1))
        await settle()
        leader = group.create_task(batcher.get(2))
        follower = group.create_task(batcher.get(3))
        await settle()
        leader.cancel()
        first.cancel()
        await settle()
        table.fails = False
        table.gate.set()
    assert follower.result() == 9
    table.fails = True
    with pytest.raises(OSError, match="lost"):
        await batcher.get(4)
    assert await batcher.get(4) == 16
