"""Changes that come at the same time are stored batcher; what fails is told to those whom it concerns."""

import asyncio
from collections.abc import Sequence

import pytest

from remuda.cell.errors import StoreError
from remuda.cell.store.write_batching import WriteBatcher
from remuda.lib.clock import settle


class Table:
    """Doubles what it is given, when the test lets it. Odd numbers have to be stored alone."""

    def __init__(self) -> None:
        self.stored: list[list[int]] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def store(self, numbers: Sequence[int]) -> Sequence[int | None]:
        self.stored.append(list(numbers))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [None if number % 2 else 2 * number for number in numbers]


async def test_alone() -> None:
    table = Table()
    table.gate.set()
    batcher = WriteBatcher(table.store, lanes=1)
    assert [await batcher.submit(4), await batcher.submit(3)] == [8, None]
    assert table.stored == [[4], [3]]


async def test_whoever_comes_while_all_lanes_are_in_use_is_stored_with_the_others() -> None:
    table = Table()
    batcher = WriteBatcher(table.store, lanes=2)
    async with asyncio.TaskGroup() as group:
        making = []
        for numbers in ((2,), (4,), (6, 7, 8, 6)):
            making += [group.create_task(batcher.submit(number)) for number in numbers]
            await settle()
        assert table.stored == [[2], [4]]
        table.gate.set()
    assert [task.result() for task in making] == [4, 8, 12, None, 16, 12]
    assert table.stored == [[2], [4], [6, 7, 8, 6]]


async def test_whoever_is_there_already_is_stored_with_the_first() -> None:
    table = Table()
    table.gate.set()
    batcher = WriteBatcher(table.store, lanes=1)
    async with asyncio.TaskGroup() as group:
        for number in (2, 4, 6):
            group.create_task(batcher.submit(number))
    assert table.stored == [[2, 4, 6]]


async def test_only_so_many_are_stored_at_once() -> None:
    table = Table()
    batcher = WriteBatcher(table.store, lanes=1)
    async with asyncio.TaskGroup() as group:
        making = [group.create_task(batcher.submit(2 * number)) for number in range(150)]
        await settle()
        table.gate.set()
    assert [task.result() for task in making] == [4 * number for number in range(150)]
    assert [len(stored) for stored in table.stored] == [64, 64, 22]


async def test_all_are_told_that_nobody_knows() -> None:
    table = Table()
    batcher = WriteBatcher(table.store, lanes=1)
    table.error = StoreError("the connection is lost")
    async with asyncio.TaskGroup() as group:
        making = [group.create_task(_said(batcher, number)) for number in (2, 4, 6)]
        await settle()
        table.gate.set()
    assert [task.result() for task in making] == ["the connection is lost"] * 3
    table.error = None
    assert await batcher.submit(2) == 4


async def test_when_the_one_who_stores_for_all_is_cancelled_each_stores_alone() -> None:
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


async def test_a_mistake_is_not_hidden() -> None:
    table = Table()
    table.gate.set()
    table.error = ValueError("a mistake")
    with pytest.raises(ValueError, match="a mistake"):
        await WriteBatcher(table.store, lanes=1).submit(2)


async def _said(batcher: WriteBatcher[int, int], number: int) -> str:
    with pytest.raises(StoreError) as raised:
        await batcher.submit(number)
    return str(raised.value)
