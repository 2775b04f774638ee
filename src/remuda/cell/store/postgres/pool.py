"""The connections of one process to its PostgreSQL database: a few, given out and taken back at next to no cost.

Decided here: how many there are, who gets one next (in order of asking), and when one is of no use any more. asyncpg
has a pool of its own; it makes a task for every connection that comes back, and timers, which took longer than the
statement itself. `postgres_access` is the caller: what it gives back is between transactions.

Invariant: a connection is in one hand at a time, and whoever waits is woken as soon as one is there or may be made.
"""

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
"""One that was not needed for so long may have been forgotten on its way by something in between."""


class Pool:
    """Up to `most` connections, each made when it is first needed."""

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
        """The one that was used last is used next; those that are not needed grow old."""
        self._count = 0
        """Those that are idle, in a hand, or being made."""
        self._closed = False
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()

    async def take(self) -> Connection:
        """A connection for the caller alone, until `give`; TimeoutError when all are in other hands for too long."""
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
        elif (found := await self._turn()) is not None:
            return found
        try:
            return await self._connect()
        except BaseException:
            self._let_make()
            raise

    def give(self, db: Connection) -> None:
        """It is not needed any more. One that is closed makes room for another."""
        if self._closed:
            db.terminate()
        if db.is_closed():
            self._let_make()
        elif waiting := self._next():
            waiting.set_result(db)
        else:
            self._idle.append((db, self._clock.monotonic()))

    async def warm_up(self, work: Callable[[Connection], Awaitable[object]]) -> None:
        """Make all connections, and do something with each, while nobody else needs them."""
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
        """Give out no more. Those that are idle are closed, those that are still in a hand when they come back."""
        self._closed = True
        while self._idle:
            await self._idle.pop()[0].close(timeout=self._wait_seconds)
            self._count -= 1

    async def _turn(self) -> Connection | None:
        """Wait for a connection; None: the caller may make one."""
        waiting: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await waiting
        except BaseException:
            if waiting.done() and not waiting.cancelled():
                # It came in the very moment in which the caller gave up.
                if (db := waiting.result()) is not None:
                    self.give(db)
                else:
                    self._let_make()
            raise

    def _let_make(self) -> None:
        """There is room for a connection: whoever waits makes it."""
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
