"""The memory budget of upload parsers, and the cache of their results."""

import asyncio
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from remuda.cell.blobs.upload_parsers import IN_MEMORY_BYTES, Parsers, Results
from remuda.lib.clock import settle


async def test_the_budget_is_reserved_in_order_and_never_exceeded() -> None:
    parsers = Parsers(memory_bytes=10)
    log: list[str] = []
    ends = {name: asyncio.Event() for name in "abcd"}

    async def work(name: str, cost: int) -> None:
        async with parsers.reserve(cost):
            log.append(f"+{name}")
            await ends[name].wait()
        log.append(f"-{name}")

    async with asyncio.TaskGroup() as group:
        group.create_task(work("a", 6))
        group.create_task(work("b", 5))
        group.create_task(work("c", 1))
        group.create_task(work("d", 1000))
        await settle()
        assert log == ["+a"]
        ends["a"].set()
        await settle()
        assert log == ["+a", "-a", "+b", "+c"]
        ends["b"].set()
        ends["c"].set()
        await settle()
        assert log[-1] == "+d"
        ends["d"].set()
    parsers.close()


async def test_a_cancelled_task_frees_its_place_and_its_share() -> None:
    parsers = Parsers(memory_bytes=10)

    async def hold() -> None:
        async with parsers.reserve(10):
            await asyncio.Event().wait()

    first, second = asyncio.ensure_future(hold()), asyncio.ensure_future(hold())
    await settle()
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    third = asyncio.ensure_future(hold())
    await settle()
    fourth = asyncio.ensure_future(hold())
    await settle()
    # The fourth task is cancelled at the moment when it gets its share.
    third.cancel()
    await settle(1)
    fourth.cancel()
    await asyncio.gather(third, fourth, return_exceptions=True)
    async with asyncio.timeout(10), parsers.reserve(10):
        pass
    parsers.close()


async def test_a_result_is_computed_once_for_concurrent_callers() -> None:
    results = Results[str](limit_bytes=10, weigh=len)
    calls: list[str] = []

    async def compute() -> str:
        calls.append("x")
        await asyncio.sleep(0)
        return "xxxxxx"

    assert await asyncio.gather(*(results.find("key", compute) for _ in range(8))) == ["xxxxxx"] * 8
    assert len(calls) == 1
    await results.find("other", compute)
    await results.find("key", compute)
    assert len(calls) == 3


async def test_a_failed_result_is_computed_again() -> None:
    results = Results[str](limit_bytes=10, weigh=len)

    async def fail() -> str:
        raise ValueError

    async def compute() -> str:
        return "x"

    with pytest.raises(ValueError):
        await results.find("key", fail)
    assert await results.find("key", compute) == "x"


async def test_a_cached_response_can_be_read_several_times() -> None:
    parsers = Parsers(memory_bytes=1)
    response = await parsers.keep(b"abc" * 100_000)
    for _ in range(2):
        assert b"".join([piece async for piece in response.pieces()]) == b"abc" * 100_000
    parsers.close()


def count_open(folder: Path) -> int:
    """Count the open files of this process that are, or were, in the folder."""
    links = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links += os.readlink(entry).startswith(f"{folder}/")
    return links


@pytest.mark.parametrize("size", [10, IN_MEMORY_BYTES + 1])
async def test_many_responses_keep_few_files_open(tmp_path: Path, size: int) -> None:
    parsers = Parsers(memory_bytes=1, folder=tmp_path)
    for number in range(1000):
        await parsers.answers.find(number, partial(parsers.keep, b"x" * size))
    assert count_open(tmp_path) <= 64
    parsers.close()


async def test_only_a_large_response_needs_a_file(tmp_path: Path) -> None:
    parsers = Parsers(memory_bytes=1, folder=tmp_path)
    responses = [await parsers.keep(content) for content in (b"", b"abc")]
    assert count_open(tmp_path) == 0
    large = await parsers.keep(b"x" * (IN_MEMORY_BYTES + 1))
    assert (large.size, count_open(tmp_path)) == (IN_MEMORY_BYTES + 1, 1)
    assert [b"".join([piece async for piece in response.pieces()]) for response in responses] == [b"", b"abc"]
    parsers.close()
