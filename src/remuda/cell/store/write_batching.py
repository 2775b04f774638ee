"""Batches writes: while one batch is being stored, further changes collect in the next one, and the caller with its
first change stores it for all. A single change waits only for a few turns of the event loop. Invariant: a caller that
gets None may store its change alone, because it was not stored; only if the task that stored the batch was cancelled
may it be stored already. If storing raises StoreError, such as for a lost connection, every caller of the batch gets
this error, and the changes may or may not be stored."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from remuda.cell.errors import StoreError

C = TypeVar("C")
R = TypeVar("R")

_AT_ONCE = 64
"""Maximum number of changes in one batch. The rows of a batch are locked until all of it is stored."""

_TURNS = 4
"""Turns of the event loop before a batch is stored, so that requests that have arrived can join it: one turn reads a
request, one begins with it. A turn costs a hundredth of a statement. Four turns save a fifth of the statements compared
with two; eight save hardly more."""


class _Batch(Generic[C, R]):
    __slots__ = ("changes", "error", "ready", "results")

    def __init__(self, change: C) -> None:
        self.changes = [change]
        self.results: Sequence[R | None] | None = None
        """None until the batch is stored, and for good if storing it failed or was cancelled."""
        self.error: StoreError | None = None
        self.ready = asyncio.Event()


class WriteBatcher(Generic[C, R]):
    """Stores changes of one kind in batches, at most `lanes` at a time. `store` returns a result for each change of a
    batch (None: the caller of `submit` must store it itself). It raises StoreError if the outcome is unknown, another
    exception only if nothing was stored."""

    def __init__(self, store: Callable[[Sequence[C]], Awaitable[Sequence[R | None]]], *, lanes: int) -> None:
        self._store = store
        self._turn = asyncio.Semaphore(lanes)
        self._next: _Batch[C, R] | None = None

    async def submit(self, change: C) -> R | None:
        """Store a change with those of concurrent callers, and return its result; None if the caller must store it
        alone. Raises StoreError if storing the batch failed; the change may be stored nevertheless."""
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
