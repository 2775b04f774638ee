"""Contract tests of the Traces port, run against every adapter."""

import asyncio
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.cell.traces.port import Appended, Traces
from remuda.model.job import JobId

JOB = JobId(1)


async def read_trace(traces: Traces, job: JobId = JOB, start: int = 0) -> bytes:
    return b"".join([piece async for piece in traces.read(job, start)])


async def test_a_trace_that_nobody_wrote_is_empty(traces: Traces) -> None:
    assert await traces.size(JOB) == 0
    assert await read_trace(traces) == b""
    assert await traces.seal(JOB) == (0, "crc32:00000000")
    assert await traces.seal(JOB) == (0, "crc32:00000000")


@pytest.mark.parametrize(
    ("start", "data", "taken", "whole"),
    [
        (5, b" world", True, b"hello world"),
        (0, b"hello", True, b"hello"),
        (1, b"ell", True, b"hello"),
        (3, b"lo world", True, b"hello world"),
        (0, b"hello world", True, b"hello world"),
        (5, b"", True, b"hello"),
        (6, b"gap", False, b"hello"),
        (6, b"", False, b"hello"),
        (10**15, b"far", False, b"hello"),
        (0, b"jello", False, b"hello"),
        (3, b"la la la", False, b"hello"),
        (-1, b"hello", False, b"hello"),
    ],
)
async def test_append_continues_or_repeats(traces: Traces, start: int, data: bytes, taken: bool, whole: bytes) -> None:
    await traces.append(JOB, 0, b"hello")
    answer = await traces.append(JOB, start, data)
    assert (answer.taken, answer.size) == (taken, len(whole))
    assert await read_trace(traces) == whole
    assert await traces.size(JOB) == len(whole)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(whole=st.binary(max_size=60), cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=20))
def test_appends_in_any_order_give_a_prefix_of_all(traces: Traces, whole: bytes, cuts: list[tuple[int, int]]) -> None:
    async def send() -> None:
        await traces.remove(JOB)
        for start, length in cuts:
            before = await traces.size(JOB)
            answer = await traces.append(JOB, start, whole[start : start + length])
            assert answer.taken == (start <= before)
            assert answer.size == await traces.size(JOB) >= before
            assert whole.startswith(await read_trace(traces))
        size = await traces.size(JOB)
        await traces.append(JOB, size, whole[size:])
        assert await read_trace(traces) == whole

    asyncio.run(send())


async def test_append_now_appends_at_once_or_returns_none(traces: Traces) -> None:
    assert await traces.append(JOB, 0, b"one ") == Appended(taken=True, size=4)
    assert traces.append_now(JOB, 4, b"two ") == Appended(taken=True, size=8)
    assert traces.append_now(JOB, 0, b"one two ") == Appended(taken=True, size=8)
    assert traces.append_now(JOB, 9, b"gap") is None
    assert traces.append_now(JOB, 0, b"other") is None
    await traces.seal(JOB)
    assert traces.append_now(JOB, 8, b"late") is None
    assert await traces.size(JOB) == 8


async def test_read_from_any_offset(traces: Traces) -> None:
    await traces.append(JOB, 0, b"x" * 300_000 + b"end")
    assert await read_trace(traces, start=300_000) == b"end"
    assert await read_trace(traces, start=300_003) == b""
    assert await read_trace(traces, start=999_999) == b""


async def test_a_sealed_trace_stays_readable_and_does_not_grow(traces: Traces) -> None:
    await traces.append(JOB, 0, b"hello\xff\x00")
    sealed = (7, f"crc32:{zlib.crc32(b'hello' + bytes([255, 0])):08x}")
    assert await traces.seal(JOB) == sealed
    assert await read_trace(traces, start=3) == b"lo\xff\x00"
    assert (await traces.append(JOB, 0, b"hello")).taken
    assert (await traces.append(JOB, 7, b"")).taken
    for start, data in ((7, b"more"), (3, b"lo\xff\x00more"), (0, b"other"), (9, b"gap")):
        answer = await traces.append(JOB, start, data)
        assert (answer.taken, answer.size) == (False, 7)
    assert await traces.seal(JOB) == sealed


async def test_compare_writes_nothing(traces: Traces) -> None:
    assert not (await traces.compare(JOB, 0, b"hello")).taken
    assert await traces.list_unarchived() == []
    await traces.append(JOB, 0, b"hello")
    for sealed in (False, True):
        if sealed:
            await traces.seal(JOB)
            await traces.archive(JOB)
        for start, data in ((0, b"hello"), (2, b"ll"), (5, b"")):
            answer = await traces.compare(JOB, start, data)
            assert (answer.taken, answer.size) == (True, 5)
        for start, data in ((0, b"hello!"), (5, b"!"), (0, b"j"), (6, b""), (-1, b"h"), (10**15, b"")):
            answer = await traces.compare(JOB, start, data)
            assert (answer.taken, answer.size) == (False, 5)


async def test_an_archived_trace_stays_readable(traces: Traces) -> None:
    text = b"x" * 300_000 + b"end"
    await traces.append(JOB, 0, text)
    await traces.append(JobId(2), 0, b"live")
    await traces.archive(JOB)
    assert sorted(await traces.list_unarchived()) == [JOB, JobId(2)]
    sealed = await traces.seal(JOB)
    assert sorted(await traces.list_unarchived()) == [JOB, JobId(2)]
    await traces.archive(JOB)
    await traces.archive(JOB)
    assert await traces.list_unarchived() == [JobId(2)]
    assert (await traces.size(JOB), await read_trace(traces)) == (len(text), text)
    assert await read_trace(traces, start=300_000) == b"end"
    assert await read_trace(traces, start=999_999) == b""
    assert await traces.seal(JOB) == sealed
    assert await traces.list_unarchived() == [JobId(2)]


async def test_a_trace_can_be_read_while_it_is_archived(traces: Traces) -> None:
    for number in range(1, 51):
        job = JobId(number)
        await traces.append(job, 0, b"hello")
        await traces.seal(job)
        async with asyncio.TaskGroup() as group:
            archive = group.create_task(traces.archive(job))
            while not archive.done():
                assert (await traces.size(job), await read_trace(traces, job)) == (5, b"hello")
                await asyncio.sleep(0)
    assert await traces.list_unarchived() == []


async def test_a_reopened_trace_grows(traces: Traces) -> None:
    await traces.reopen(JOB)
    await traces.append(JOB, 0, b"hello")
    await traces.seal(JOB)
    await traces.reopen(JOB)
    await traces.reopen(JOB)
    assert (await traces.append(JOB, 5, b" world")).taken
    assert await read_trace(traces) == b"hello world"
    assert await traces.seal(JOB) == (11, f"crc32:{zlib.crc32(b'hello world'):08x}")
    assert not (await traces.append(JOB, 11, b"!")).taken


async def test_sealing_twice_at_once_loses_nothing(traces: Traces) -> None:
    await traces.append(JOB, 0, b"hello")
    async with asyncio.TaskGroup() as group:
        seals = [group.create_task(traces.seal(JOB)) for _ in range(5)]
    assert {seal.result() for seal in seals} == {(5, "crc32:3610a686")}
    assert await read_trace(traces) == b"hello"


async def test_a_trace_can_be_read_while_it_is_sealed(traces: Traces) -> None:
    for number in range(1, 101):
        job = JobId(number)
        await traces.append(job, 0, b"hello")
        async with asyncio.TaskGroup() as group:
            seal = group.create_task(traces.seal(job))
            while not seal.done():
                assert (await traces.size(job), await read_trace(traces, job)) == (5, b"hello")
                await asyncio.sleep(0)


async def test_traces_do_not_mix(traces: Traces) -> None:
    jobs = [JobId(number) for number in range(1, 101)]
    for turn in range(3):
        for job in jobs:
            assert (await traces.append(job, turn * 4, f"{job:03} ".encode())).taken
    for job in jobs:
        assert await read_trace(traces, job) == f"{job:03} ".encode() * 3


async def test_a_removed_trace_is_gone(traces: Traces) -> None:
    for steps in (0, 1, 2):
        await traces.append(JOB, 0, b"hello")
        if steps:
            await traces.seal(JOB)
        if steps == 2:
            await traces.archive(JOB)
        await traces.remove(JOB)
        await traces.remove(JOB)
        assert (await traces.size(JOB), await read_trace(traces)) == (0, b"")
