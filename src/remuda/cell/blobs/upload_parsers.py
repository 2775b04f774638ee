"""Worker threads that parse uploads (JUnit reports, archives) within a memory budget, and a cache of the HTTP answers
made from them.

Every parser has limits, so the most memory that it can need (its cost) is known. A parser waits, first come first
served, until that much of the budget is free, and reserves it. A finished answer that is not small is written to a
temporary file without a name, so a slow reader keeps none of it in memory. Invariant: the costs of all running parsers
never exceed the budget; a parser that costs more than the whole budget runs alone."""

import asyncio
import contextlib
import os
import tempfile
import weakref
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar

from remuda.cell.blobs.archives import Entry
from remuda.cell.errors import StoreError

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 2
"""They share one interpreter lock: more threads are not faster, and delay the event loop."""
KEPT_BYTES = 256 * 1024 * 1024
"""Limit for all cached answers together, most of which are on disk."""
IN_MEMORY_BYTES = 64 * 1024
"""An answer up to this size needs no file."""
_LEAST_IN_MEMORY_BYTES = 1024 * 1024
_LEAST_ON_DISK_BYTES = 4 * 1024 * 1024
"""The least weight of an answer, so that many small ones use up neither memory nor descriptors."""
_KEPT_ENTRIES_BYTES = 4 * 1024 * 1024
"""Limit for all cached entries of archives together, in memory."""
_PIECE_BYTES = 256 * 1024


class Parsers:
    def __init__(self, *, memory_bytes: int, folder: Path | None = None) -> None:
        self.answers = Results[KeptAnswer](limit_bytes=KEPT_BYTES, weigh=lambda answer: answer.weight)
        self.entries = Results[Entry](
            limit_bytes=_KEPT_ENTRIES_BYTES, weigh=lambda entry: 500 + 6 * len(entry.zip_entry.raw_name)
        )
        self._folder = folder
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="cell-parser")
        self._memory_bytes = self._free_bytes = memory_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def reserve(self, cost_bytes: int) -> AsyncIterator[None]:
        """Context manager: wait until this many bytes of the memory budget are free, and reserve them for the block."""
        cost = min(cost_bytes, self._memory_bytes)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((cost, turn))
        self._admit()
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._free_bytes += cost
            self._admit()
            raise
        try:
            yield
        finally:
            self._free_bytes += cost
            self._admit()

    def _admit(self) -> None:
        while self._waiting:
            cost, turn = self._waiting[0]
            if not turn.done():
                if cost > self._free_bytes:
                    return
                self._free_bytes -= cost
                turn.set_result(None)
            self._waiting.popleft()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))

    async def keep(self, content: bytes) -> "KeptAnswer":
        """Store the bytes of an HTTP answer for its readers, in memory or a file. StoreError if writing fails."""
        try:
            return await self.run(KeptAnswer, content, self._folder)
        except OSError as error:
            raise StoreError(f"cannot keep an answer in {self._folder}: {error.strerror}") from error

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.answers.clear()


class KeptAnswer:
    """The bytes of an HTTP answer: in memory if few, else in a temporary file, closed when nobody uses it any more."""

    def __init__(self, content: bytes, folder: Path | None) -> None:
        self.size = len(content)
        self._content = content if self.size <= IN_MEMORY_BYTES else None
        self.weight = max(self.size, _LEAST_ON_DISK_BYTES if self._content is None else _LEAST_IN_MEMORY_BYTES)
        if self._content is not None:
            return
        # In the data folder: the machine's temporary folder is often in memory.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(content)
            file.flush()
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        if self._content is not None:
            yield self._content
            return
        start = 0
        while piece := await asyncio.to_thread(self._read, start):
            start += len(piece)
            yield piece

    def _read(self, start: int) -> bytes:
        return os.pread(self._descriptor, _PIECE_BYTES, start)


class Results(Generic[T]):
    """Caches parse results, so that each upload is parsed once; drops the least recently used above `limit_bytes`."""

    def __init__(self, *, limit_bytes: int, weigh: Callable[[T], int]) -> None:
        self._limit_bytes = limit_bytes
        self._weigh = weigh
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self._size = 0
        self._making: weakref.WeakValueDictionary[Hashable, asyncio.Lock] = weakref.WeakValueDictionary()

    async def find(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return the result for `key`; on a miss `make` computes it, and other calls for the key wait for that."""
        lock = self._making.setdefault(key, asyncio.Lock())
        async with lock:
            result = self._kept.get(key)
            if result is None:
                result = self._kept[key] = await make()
                self._size += self._weigh(result)
            self._kept.move_to_end(key)
            while self._size > self._limit_bytes and len(self._kept) > 1:
                self._size -= self._weigh(self._kept.popitem(last=False)[1])
            return result

    def clear(self) -> None:
        self._kept.clear()
        self._size = 0
