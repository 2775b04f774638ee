"""Memory reserved for content that is read as a whole."""

import asyncio
import contextlib

from remuda.cell.blobs.upload_parsers import Parsers
from remuda.cell.errors import TooLargeError
from remuda.cell.http.edge.large_bodies import LARGE_BYTES, large_content

SIZE, LIMIT, BUDGET = 2 * LARGE_BYTES, 100 * LARGE_BYTES, 256 * LARGE_BYTES


async def read(limit_bytes: int) -> bytes:
    if limit_bytes < SIZE:
        raise TooLargeError("too large")
    return b"x" * SIZE


async def measure() -> int:
    return SIZE


async def test_content_of_known_size_reserves_its_size() -> None:
    parsers = Parsers(memory_bytes=BUDGET)
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(20):
        for _ in range(10):
            content = large_content(parsers, read, limit_bytes=LIMIT, measure=measure)
            assert len(await stack.enter_async_context(content)) == SIZE
    parsers.close()


async def test_content_of_unknown_size_reserves_the_limit() -> None:
    parsers = Parsers(memory_bytes=BUDGET)
    async with large_content(parsers, read, limit_bytes=LIMIT):
        waiting = asyncio.ensure_future(contextlib.AsyncExitStack().enter_async_context(parsers.reserve(1)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 20)
    parsers.close()
