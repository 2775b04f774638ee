"""On every Python a task group takes its own cancellation of the caller back and keeps those of others, and a timeout
raises TimeoutError even if the task still counts an earlier cancellation."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine

import pytest

from remuda.lib.event_loop import count_cancellations

PROGRAM = """
import asyncio, signal
from remuda.lib import event_loop

async def fail():
    raise ValueError

async def fail_in_group():
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
    except ExceptionGroup:
        pass

async def leave_cancellation():
    asyncio.current_task().cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        pass

async def reach_timeout():
    await leave_cancellation()
    try:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
    except TimeoutError:
        return "timeout"

async def be_interrupted():
    await fail_in_group()
    signal.raise_signal(signal.SIGINT)
    await asyncio.Event().wait()

print(event_loop.run(reach_timeout()))
try:
    event_loop.run(be_interrupted())
except KeyboardInterrupt:
    print("interrupt")
"""


async def fail() -> None:
    raise ValueError("failed while the block ends")


async def fail_in_group(*others: Coroutine[None, None, None]) -> None:
    """Let a task fail while its group waits for it and for others."""
    async with asyncio.TaskGroup() as group:
        for other in others:
            group.create_task(other)
        group.create_task(fail())


async def wait_in_group(*works: Coroutine[None, None, None]) -> None:
    """Wait within the block of a group for what its tasks do."""
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)
        await asyncio.Event().wait()


async def fail_when_cancelled(entered: asyncio.Event) -> None:
    entered.set()
    try:
        await asyncio.Event().wait()
    finally:
        await fail()


async def leave_cancellation() -> None:
    """Let the current task count a cancellation that nobody takes back, as some libraries do."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)
    assert count_cancellations() == 1


async def test_a_timeout_after_a_cancellation_is_a_timeout() -> None:
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


@pytest.mark.parametrize("fail_somehow", [fail_in_group, lambda: wait_in_group(fail())])
async def test_a_failed_group_leaves_no_cancellation(fail_somehow: Callable[[], Coroutine[None, None, None]]) -> None:
    with pytest.raises(ExceptionGroup):
        await fail_somehow()
    assert count_cancellations() == 0


async def test_a_group_that_fails_within_a_failing_group_leaves_the_cancellation_of_the_outer_one() -> None:
    entered = asyncio.Event()
    counts = []

    async def fail_later() -> None:
        await entered.wait()
        await fail()

    async def work() -> None:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(fail_later())
            with pytest.raises(ExceptionGroup):
                await wait_in_group(fail_when_cancelled(entered))
            counts.append(count_cancellations())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup):
        await work()
    assert [*counts, count_cancellations()] == [1, 0]


@pytest.mark.parametrize("is_in_block", [True, False])
async def test_a_cancellation_that_arrives_while_a_group_fails_is_delivered_later(is_in_block: bool) -> None:
    """Otherwise a task whose end was requested would continue as if nobody had."""
    entered = asyncio.Event()
    is_continuing = False

    async def wait_for_its_end() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail_when_cancelled(entered))

    async def work() -> None:
        nonlocal is_continuing
        with pytest.raises(ExceptionGroup):
            await (wait_in_group(fail_when_cancelled(entered)) if is_in_block else wait_for_its_end())
        await asyncio.sleep(0)
        is_continuing = True

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_continuing


async def test_a_cancellation_that_arrives_after_a_task_failed_is_delivered_later() -> None:
    """The group has cancelled the task already, and takes only its own cancellation back."""
    cleaning_up = asyncio.Event()
    finish = asyncio.Event()

    async def clean_up_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning_up.set()
            await finish.wait()

    async def work() -> None:
        with pytest.raises(ExceptionGroup):
            await fail_in_group(clean_up_slowly())
        await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await cleaning_up.wait()
    task.cancel()
    finish.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_group_without_errors_leaves_a_cancellation_as_it_is() -> None:
    entered = asyncio.Event()

    async def enter() -> None:
        entered.set()

    task = asyncio.create_task(wait_in_group(enter()))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


def test_the_event_loop_of_a_process_has_the_corrections() -> None:
    completed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (completed.stdout, completed.stderr) == ("timeout\ninterrupt\n", "")
