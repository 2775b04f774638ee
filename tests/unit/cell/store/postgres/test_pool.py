"""The connection pool: reuse, waiting in order, and replacement of old and broken connections."""

import asyncio
from typing import Any

import asyncpg
import pytest

from remuda.cell.store.postgres.pool import IDLE_SECONDS, Pool
from remuda.lib.clock import VirtualClock, settle


class FakeConnection:
    """The part of a connection that the pool uses."""

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
        self.connections: list[Any] = []
        self.is_refusing = False
        self.pool = Pool(self._connect, most=most, wait_seconds=wait_seconds, clock=self.clock)

    async def _connect(self) -> Any:
        await asyncio.sleep(0)
        if self.is_refusing:
            raise OSError("the server is unavailable")
        self.connections.append(FakeConnection())
        return self.connections[-1]


async def test_the_last_used_connection_is_used_next() -> None:
    bench = Bench()
    first, second = await bench.pool.take(), await bench.pool.take()
    bench.pool.give(first)
    bench.pool.give(second)
    assert await bench.pool.take() is second
    assert len(bench.connections) == 2


async def test_waiting_tasks_get_connections_in_order() -> None:
    bench = Bench(most=1)
    db = await bench.pool.take()
    order: list[int] = []

    async def work(number: int) -> None:
        connection = await bench.pool.take()
        order.append(number)
        await asyncio.sleep(0)
        bench.pool.give(connection)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(work(number))
        await settle()
        assert order == []
        bench.pool.give(db)
    assert order == list(range(5))
    assert len(bench.connections) == 1


async def test_a_broken_connection_is_replaced() -> None:
    bench = Bench(most=1)
    db: Any = await bench.pool.take()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(bench.pool.take())
        await settle()
        db.terminate()
        bench.pool.give(db)
    assert waiting.result() is bench.connections[1]


async def test_failed_connects_do_not_use_up_the_pool() -> None:
    bench = Bench(most=1)
    bench.is_refusing = True
    for _ in range(3):
        with pytest.raises(OSError, match="unavailable"):
            await bench.pool.take()
    bench.is_refusing = False
    assert await bench.pool.take() is bench.connections[0]


async def test_old_and_broken_connections_are_not_given_out() -> None:
    bench = Bench()
    old, broken = await bench.pool.take(), await bench.pool.take()
    bench.pool.give(old)
    await bench.clock.advance(IDLE_SECONDS)
    bench.pool.give(broken)
    bench.connections[1].terminate()
    assert await bench.pool.take() is bench.connections[2]
    assert bench.connections[0].closed


async def test_a_timed_out_or_cancelled_task_loses_no_connection() -> None:
    bench = Bench(most=1, wait_seconds=0.001)
    db = await bench.pool.take()
    with pytest.raises(TimeoutError):
        await bench.pool.take()
    async with asyncio.TaskGroup() as group:
        pool = Pool(bench._connect, most=1, wait_seconds=20)
        first = await pool.take()
        waiting = group.create_task(pool.take())
        await settle()
        pool.give(first)
        # The connection was given to a task that is cancelled before it runs again.
        waiting.cancel()
        await settle()
        assert await pool.take() is first
    bench.pool.give(db)
    assert await bench.pool.take() is db


async def test_a_closed_pool_gives_out_no_connection() -> None:
    bench = Bench()
    late: Any = await bench.pool.take()
    bench.pool.give(await bench.pool.take())
    await bench.pool.close()
    assert bench.connections[1].closed
    bench.pool.give(late)
    assert late.closed
    with pytest.raises(asyncpg.InterfaceError):
        await bench.pool.take()
