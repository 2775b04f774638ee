"""A pool of PostgreSQL connections; callers get them in the order in which they asked. asyncpg's own pool is not used:
it creates a task and timers for every returned connection, which took longer than the statement itself. Invariant: a
connection has one user at a time, and a waiting caller is woken as soon as one is free or may be opened."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import asyncpg

from remuda.lib.clock import Clock, SystemClock

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = Any

IDLE_SECONDS = 300
"""A connection that was idle for longer is not used again: a firewall may have dropped it."""


class Pool:
    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        *,
        most: int,
        wait_seconds: float,
        clock: Clock | None = None,
    ) -> None:
        self._connect = connect
        self._most = most
        self._wait_seconds = wait_seconds
        self._clock = clock or SystemClock()
        self._idle: list[tuple[Connection, float]] = []
        """The connection that was used last is used next, so that surplus ones grow old."""
        self._count = 0
        """Connections that are idle, in use, or being opened."""
        self._closed = False
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()

    async def take(self) -> Connection:
        """Take a connection until `give`. Raises TimeoutError if all stay in use, InterfaceError after `close`."""
        if self._closed:
            raise asyncpg.InterfaceError("the connections are closed")
        while self._idle:
            db, since = self._idle.pop()
            if not db.is_closed() and self._clock.monotonic() - since < IDLE_SECONDS:
                return db
            db.terminate()
            self._count -= 1
        if self._count < self._most:
            self._count += 1
        elif (returned := await self._wait_turn()) is not None:
            return returned
        try:
            return await self._connect()
        except BaseException:
            self._let_next_open()
            raise

    def give(self, db: Connection) -> None:
        """Give a connection back. If it is closed, the caller that has waited longest may open a new one."""
        if self._closed:
            db.terminate()
        if db.is_closed():
            self._let_next_open()
        elif waiting := self._next():
            waiting.set_result(db)
        else:
            self._idle.append((db, self._clock.monotonic()))

    async def warm_up(self, work: Callable[[Connection], Awaitable[object]]) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._most):
                group.create_task(self._warm(work), name=f"connection {number}")

    async def _warm(self, work: Callable[[Connection], Awaitable[object]]) -> None:
        db = await self.take()
        try:
            await work(db)
        except BaseException:
            db.terminate()
            raise
        finally:
            self.give(db)

    async def close(self) -> None:
        """Close the idle connections now. Connections in use are closed when their users give them back."""
        self._closed = True
        while self._idle:
            await self._idle.pop()[0].close(timeout=self._wait_seconds)
            self._count -= 1

    async def _wait_turn(self) -> Connection | None:
        """Wait until another caller gives a connection back. None: this caller must open a new one instead."""
        waiting: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await waiting
        except BaseException:
            if waiting.done() and not waiting.cancelled():
                # A connection, or the permission to open one, arrived when the caller gave up.
                if (db := waiting.result()) is not None:
                    self.give(db)
                else:
                    self._let_next_open()
            raise

    def _let_next_open(self) -> None:
        if waiting := self._next():
            waiting.set_result(None)
        else:
            self._count -= 1

    def _next(self) -> asyncio.Future[Connection | None] | None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                return waiting
        return None
