"""Changes that many requests want at the same time, stored together: one statement, transaction or thread for all.

Decided here is only who waits for whom, and who is told what when it fails. While a few are on their way, those who
come gather, and one of them stores for all. Alone, nobody waits for anything but a few turns of the loop. The stores
and `traces` are the callers; what a change is, and how several become one, they say themselves.

Invariant: whoever is told that a change was not stored together may make it alone. That is so after every failure that
the server told (then nothing of it is stored), and where the one who stored for all was cancelled: a change that was
stored after all is then found there. After a lost connection nobody knows, and everybody is told that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from remuda.cell.errors import StoreError

C = TypeVar("C")
R = TypeVar("R")

_AT_ONCE = 64
"""So many changes at most are stored together: those of others wait until their rows are free again."""


_TURNS = 4
"""So many turns of the loop are left to others first: whoever's request is there already (one turn to read it, one to
begin with it) takes part, and whoever answers to what just went out. A turn costs a hundredth of a statement; with four
of them there are a fifth fewer statements than with two, with eight hardly fewer."""


class _Batch(Generic[C, R]):
    __slots__ = ("changes", "error", "ready", "results")

    def __init__(self, change: C) -> None:
        self.changes = [change]
        self.results: Sequence[R | None] | None = None
        """None: nothing was stored, as far as anybody knows."""
        self.error: StoreError | None = None
        self.ready = asyncio.Event()


class Together(Generic[C, R]):
    """One kind of change. `store` stores many: what each came to, or None for one that has to be made alone.

    It raises StoreError when nobody knows whether they are stored, and anything else when they are not.
    """

    def __init__(self, store: Callable[[Sequence[C]], Awaitable[Sequence[R | None]]], *, lanes: int) -> None:
        self._store = store
        self._turn = asyncio.Semaphore(lanes)
        self._next: _Batch[C, R] | None = None

    async def make(self, change: C) -> R | None:
        """What the change came to; None: it is not stored, and has to be made alone."""
        batch = self._next
        if batch is None or len(batch.changes) >= _AT_ONCE:
            batch = _Batch[C, R](change)
            await self._lead(batch)
            number = 0
        else:
            number = len(batch.changes)
            batch.changes.append(change)
            await batch.ready.wait()
        if batch.error is not None:
            raise StoreError(str(batch.error)) from batch.error
        return batch.results[number] if batch.results is not None else None

    async def _lead(self, batch: _Batch[C, R]) -> None:
        self._next = batch
        try:
            async with self._turn:
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
                if self._next is batch:
                    self._next = None
                batch.results = await self._store(batch.changes)
        except StoreError as error:
            batch.error = error
        finally:
            if self._next is batch:
                self._next = None
            batch.ready.set()
