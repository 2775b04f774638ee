"""Connections are given out one hand at a time; whoever waits gets the next one, or room to make it."""

import asyncio
from typing import Any

import asyncpg
import pytest

from remuda.cell.store.postgres.pool import IDLE_SECONDS, Pool
from remuda.lib.clock import VirtualClock, settle


class Fake:
    """As much of a connection as the pool looks at."""

    def __init__(self) -> None:
        self.closed = False

    def is_closed(self) -> bool:
        return self.closed

    def terminate(self) -> None:
        self.closed = True

    async def close(self, *, timeout: float) -> None:
        self.closed = True


class Bench:
    def __init__(self, *, most: int = 2, wait_seconds: float = 20) -> None:
        self.clock = VirtualClock()
        self.made: list[Any] = []
        self.refuses = False
        self.pool = Pool(self._connect, most=most, wait_seconds=wait_seconds, clock=self.clock)

    async def _connect(self) -> Any:
        await asyncio.sleep(0)
        if self.refuses:
            raise OSError("the server is away")
        self.made.append(Fake())
        return self.made[-1]


async def test_the_one_used_last_is_used_next() -> None:
    bench = Bench()
    first, second = await bench.pool.take(), await bench.pool.take()
    bench.pool.give(first)
    bench.pool.give(second)
    assert await bench.pool.take() is second
    assert len(bench.made) == 2


async def test_whoever_waits_gets_the_next_in_order() -> None:
    bench = Bench(most=1)
    db = await bench.pool.take()
    order: list[int] = []

    async def work(number: int) -> None:
        mine = await bench.pool.take()
        order.append(number)
        await asyncio.sleep(0)
        bench.pool.give(mine)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(work(number))
        await settle()
        assert order == []
        bench.pool.give(db)
    assert order == list(range(5))
    assert len(bench.made) == 1


async def test_one_that_broke_makes_room() -> None:
    bench = Bench(most=1)
    db: Any = await bench.pool.take()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(bench.pool.take())
        await settle()
        db.terminate()
        bench.pool.give(db)
    assert waiting.result() is bench.made[1]


async def test_a_server_that_is_away_keeps_no_room_taken() -> None:
    bench = Bench(most=1)
    bench.refuses = True
    for _ in range(3):
        with pytest.raises(OSError, match="away"):
            await bench.pool.take()
    bench.refuses = False
    assert await bench.pool.take() is bench.made[0]


async def test_old_and_broken_ones_are_not_given_out() -> None:
    bench = Bench()
    old, broken = await bench.pool.take(), await bench.pool.take()
    bench.pool.give(old)
    await bench.clock.advance(IDLE_SECONDS)
    bench.pool.give(broken)
    bench.made[1].terminate()
    assert await bench.pool.take() is bench.made[2]
    assert bench.made[0].closed


async def test_who_gives_up_takes_nothing_along() -> None:
    bench = Bench(most=1, wait_seconds=0.001)
    db = await bench.pool.take()
    with pytest.raises(TimeoutError):
        await bench.pool.take()
    async with asyncio.TaskGroup() as group:
        patient = Pool(bench._connect, most=1, wait_seconds=20)
        first = await patient.take()
        waiting = group.create_task(patient.take())
        await settle()
        patient.give(first)
        # It was given to somebody who is cancelled before they run again.
        waiting.cancel()
        await settle()
        assert await patient.take() is first
    bench.pool.give(db)
    assert await bench.pool.take() is db


async def test_after_the_end_none_is_given_out() -> None:
    bench = Bench()
    late: Any = await bench.pool.take()
    bench.pool.give(await bench.pool.take())
    await bench.pool.close()
    assert bench.made[1].closed
    bench.pool.give(late)
    assert late.closed
    with pytest.raises(asyncpg.InterfaceError):
        await bench.pool.take()
