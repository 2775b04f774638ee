"""Calls that wait until a job's log grows."""

import asyncio

from remuda.cell.traces.readers import TraceReaders
from remuda.lib.clock import SystemClock
from remuda.model.job import JobId

JOB = JobId(7)


class Log:
    """A log of this process, or of another one: then nobody is told when it grows."""

    def __init__(self) -> None:
        self.bytes = 0
        self.checked = asyncio.Event()

    async def is_ready(self) -> bool:
        self.checked.set()
        return self.bytes > 0

    async def size(self) -> int:
        return self.bytes


async def until_waiting(log: Log) -> None:
    await log.checked.wait()
    log.checked.clear()
    await asyncio.sleep(0)


async def test_a_note_about_the_job_wakes_it() -> None:
    readers, log = TraceReaders(), Log()
    async with asyncio.TaskGroup() as group, asyncio.timeout(10):
        waiting = group.create_task(
            readers.wait(JOB, 50, is_ready=log.is_ready, size=None, clock=SystemClock()), name="reader"
        )
        await until_waiting(log)
        readers.note(JobId(8))
        readers.note(JOB)
        await until_waiting(log)
        assert not waiting.done()
        log.bytes = 3
        readers.note()
    assert readers._waiting == {}


async def test_it_does_not_wait_for_what_is_there() -> None:
    readers, log = TraceReaders(), Log()
    log.bytes = 1
    async with asyncio.timeout(10):
        await readers.wait(JOB, 50, is_ready=log.is_ready, size=None, clock=SystemClock())


async def test_it_ends_when_the_process_stops() -> None:
    readers, log = TraceReaders(), Log()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(readers.wait(JOB, 50, is_ready=log.is_ready, size=None, clock=SystemClock()), name="reader")
        await until_waiting(log)
        readers.stop()
    async with asyncio.timeout(10):
        await readers.wait(JOB, 50, is_ready=log.is_ready, size=None, clock=SystemClock())
