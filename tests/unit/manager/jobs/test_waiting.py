"""How a job waits for events, times and long work, tested with a virtual clock."""

import asyncio

import pytest

from remuda.lib.clock import VirtualClock, settle
from remuda.manager.jobs.waiting import Bell, Hindrance, run_beside


async def test_a_bell_wakes_at_an_event_or_at_its_time() -> None:
    clock = VirtualClock()
    bell = Bell(clock, "job 7")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(bell.until(clock.monotonic() + 10))
        await clock.advance(9)
        assert not waiting.done()
        await clock.advance(1)
        assert waiting.done()
        bell.clear()
        waiting = group.create_task(bell.until(clock.monotonic() + 10))
        await settle()
        bell.ring()
        await settle()
        assert waiting.done()
    await bell.until(clock.monotonic() + 10)  # an earlier ring counts


async def test_turns_are_called_until_the_work_is_done() -> None:
    clock = VirtualClock()
    bell, turns = Bell(clock, "job 7"), []

    async def work() -> str:
        await clock.sleep(25)
        return "done"

    async def turn() -> bool:
        bell.clear()
        turns.append(clock.monotonic())
        await bell.until(clock.monotonic() + 10)
        return True

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(run_beside(work(), turn, bell))
        await clock.advance(25)
        assert await waiting == "done"
    assert [time - turns[0] for time in turns] == [0, 10, 20]


async def test_work_is_cancelled_if_a_turn_returns_false() -> None:
    clock = VirtualClock()
    ended: list[str] = []

    async def work() -> str:
        try:
            await clock.sleep(1000)
        finally:
            ended.append("work")
        return "done"

    async def turn() -> bool:
        await clock.sleep(1)
        return False

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(run_beside(work(), turn, Bell(clock, "job 7")))
        await clock.advance(1)
        assert await waiting is None
    assert ended == ["work"]


async def test_an_error_of_the_work_is_raised_unchanged() -> None:
    bell = Bell(VirtualClock(), "job 7")

    async def work() -> str:
        raise OSError("no room")

    async def turn() -> bool:
        await bell.until(float("inf"))
        return True

    with pytest.raises(OSError, match="no room"):
        await run_beside(work(), turn, bell)


def test_a_hindrance_is_new_if_its_cause_differs_from_the_last_one() -> None:
    hindrance = Hindrance()
    assert hindrance.is_new("its disk is full")
    hindrance.clear()
    assert hindrance.cause == ""
    assert not hindrance.is_new("its disk is full")
    assert hindrance.cause == "its disk is full"
    assert hindrance.is_new("nobody answers")
