"""Batches reads: while a statement runs, the keys that other requests ask for are collected, and the next statement
reads all of them. Otherwise a request does not wait. Nearly every request reads a job or runner first, and a statement
costs far more than a row. Invariant: a row is read after the caller asked for it, so a caller sees its own writes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
R = TypeVar("R")


class _Batch(Generic[K, R]):
    __slots__ = ("failed", "keys", "ready", "rows")

    def __init__(self) -> None:
        self.keys: dict[K, None] = {}
        self.rows: Mapping[K, R] = {}
        self.failed = False
        self.ready = asyncio.Event()


class ReadBatcher(Generic[K, R]):
    """Reads rows for many callers with one statement. `fetch` gets keys and returns the rows that exist, by key."""

    def __init__(self, fetch: Callable[[Sequence[K]], Awaitable[Mapping[K, R]]]) -> None:
        self._fetch = fetch
        self._turn = asyncio.Lock()
        self._next: _Batch[K, R] | None = None

    async def get(self, key: K) -> R | None:
        batch = self._next
        if batch is None:
            return await self._lead(key)
        batch.keys[key] = None
        await batch.ready.wait()
        # The failure may concern only the request that read for all, so try again alone.
        return (await self._fetch([key]) if batch.failed else batch.rows).get(key)

    async def _lead(self, key: K) -> R | None:
        batch = self._next = _Batch[K, R]()
        batch.keys[key] = None
        try:
            async with self._turn:
                # A later request must not join: it could miss its own writes.
                self._next = None
                batch.rows = await self._fetch(list(batch.keys))
        except BaseException:
            batch.failed = True
            raise
        finally:
            if self._next is batch:
                self._next = None
            batch.ready.set()
        return batch.rows.get(key)
