"""`asyncio.timeout` raises TimeoutError even if the task still counts an earlier cancellation, on every Python."""

import asyncio
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio
from remuda.lib import event_loop

async def fail():
    raise ValueError

async def main():
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
    except ExceptionGroup:
        pass
    try:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
    except TimeoutError:
        return "timeout"

print(event_loop.run(main()))
"""


async def fail() -> None:
    raise ValueError("failed while the block ends")


async def leave_cancellation() -> None:
    """Let a task fail while its group waits for it. Older Pythons then still count a cancellation of the caller."""
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())


async def test_a_timeout_after_a_failed_group_is_a_timeout() -> None:
    await leave_cancellation()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_a_timeout_within_a_timeout_ends_the_inner_block_only() -> None:
    await leave_cancellation()
    async with asyncio.timeout(60) as outer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
    assert not outer.expired()


async def test_a_cancelled_task_is_cancelled_even_if_its_timeout_expires_too() -> None:
    entered = asyncio.Event()

    async def wait() -> None:
        async with asyncio.timeout(0) as timeout:
            timeout.reschedule(None)
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                timeout.reschedule(0)
                await asyncio.sleep(0.01)

    task = asyncio.create_task(wait())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_within_the_block_is_raised() -> None:
    await leave_cancellation()
    with pytest.raises(ValueError, match="failed"):
        async with asyncio.timeout(60):
            await fail()


def test_the_event_loop_of_a_process_has_the_correction() -> None:
    completed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert completed.stdout == "timeout\n"
