"""Batched writes: concurrent changes are stored together, and errors reach the callers that they concern."""

import asyncio
from collections.abc import Sequence

import pytest

from remuda.cell.errors import StoreError
from remuda.cell.store.write_batching import WriteBatcher
from remuda.lib.clock import settle


class Table:
    """Returns doubled numbers when the test opens the gate. Odd numbers must be stored alone (None)."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def store(self, numbers: Sequence[int]) -> Sequence[int | None]:
        self.batches.append(list(numbers))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [None if number % 2 else 2 * number for number in numbers]


async def test_single_writes_are_not_batched() -> None:
    table = Table()
    table.gate.set()
    batcher = WriteBatcher(table.store, lanes=1)
    assert [await batcher.submit(4), await batcher.submit(3)] == [8, None]
    assert table.batches == [[4], [3]]


async def test_writes_that_wait_for_a_lane_share_a_batch() -> None:
    table = Table()
    batcher = WriteBatcher(table.store, lanes=2)
    async with asyncio.TaskGroup() as group:
        tasks = []
        for numbers in ((2,), (4,), (6, 7, 8, 6)):
            tasks += [group.create_task(batcher.submit(number)) for number in numbers]
            await settle()
        assert table.batches == [[2], [4]]
        table.gate.set()
    assert [task.result() for task in tasks] == [4, 8, 12, None, 16, 12]
    assert table.batches == [[2], [4], [6, 7, 8, 6]]


async def test_writes_of_the_same_loop_iteration_share_a_batch() -> None:
    table = Table()
    table.gate.set()
    batcher = WriteBatcher(table.store, lanes=1)
    async with asyncio.TaskGroup() as group:
        for number in (2, 4, 6):
            group.create_task(batcher.submit(number))
    assert table.batches == [[2, 4, 6]]


async def test_the_size_of_a_batch_is_limited() -> None:
    table = Table()
    batcher = WriteBatcher(table.store, lanes=1)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(batcher.submit(2 * number)) for number in range(150)]
        await settle()
        table.gate.set()
    assert [task.result() for task in tasks] == [4 * number for number in range(150)]
    assert [len(batch) for batch in table.batches] == [64, 64, 22]


async def test_a_store_error_reaches_all_callers_of_the_batch() -> None:
    table = Table()
    batcher = WriteBatcher(table.store, lanes=1)
    table.error = StoreError("the connection is lost")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_submit_with_error(batcher, number)) for number in (2, 4, 6)]
        await settle()
        table.gate.set()
    assert [task.result() for task in tasks] == ["the connection is lost"] * 3
    table.error = None
    assert await batcher.submit(2) == 4


async def test_a_cancel_of_the_leader_makes_the_others_store_alone() -> None:
    table = Table()
    batcher = WriteBatcher(table.store, lanes=1)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(batcher.submit(2))
        await settle()
        leader, follower = [group.create_task(batcher.submit(number)) for number in (4, 6)]
        await settle()
        leader.cancel()
        await settle()
        assert follower.result() is None
        first.cancel()
    table.gate.set()
    assert await batcher.submit(2) == 4


async def test_an_unexpected_error_is_raised() -> None:
    table = Table()
    table.gate.set()
    table.error = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        await WriteBatcher(table.store, lanes=1).submit(2)


async def _submit_with_error(batcher: WriteBatcher[int, int], number: int) -> str:
    with pytest.raises(StoreError) as raised:
        await batcher.submit(number)
    return str(raised.value)
