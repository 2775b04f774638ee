"""Rows that many requests ask for at the same time, by key, read with one statement for all of them.

Decided here is only who waits for whom: while a statement is on its way, those who ask for further keys gather, and one
of them asks for all. Alone, nobody waits for anything. Nearly every request begins with reading one job or runner, and
a statement costs far more than a row. `postgres_access` is the caller.

Invariant: what somebody gets was read after they asked, so everybody sees what they stored themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
R = TypeVar("R")


class _Batch(Generic[K, R]):
    __slots__ = ("failed", "found", "keys", "ready")

    def __init__(self) -> None:
        self.keys: dict[K, None] = {}
        self.found: Mapping[K, R] = {}
        self.failed = False
        self.ready = asyncio.Event()


class Gathered(Generic[K, R]):
    """One kind of rows; `fetch` reads those of many keys."""

    def __init__(self, fetch: Callable[[Sequence[K]], Awaitable[Mapping[K, R]]]) -> None:
        self._fetch = fetch
        self._turn = asyncio.Lock()
        self._next: _Batch[K, R] | None = None

    async def get(self, key: K) -> R | None:
        """The row of a key; None when there is none."""
        batch = self._next
        if batch is None:
            return await self._lead(key)
        batch.keys[key] = None
        await batch.ready.wait()
        # Whatever happened to the one who asked for all: it may not happen to another.
        return (await self._fetch([key]) if batch.failed else batch.found).get(key)

    async def _lead(self, key: K) -> R | None:
        batch = self._next = _Batch[K, R]()
        batch.keys[key] = None
        try:
            async with self._turn:
                # Whoever comes from now on would be too late to see what is stored meanwhile.
                self._next = None
                batch.found = await self._fetch(list(batch.keys))
        except BaseException:
            batch.failed = True
            raise
        finally:
            if self._next is batch:
                self._next = None
            batch.ready.set()
        return batch.found.get(key)
