"""Waiting for events with a time limit, with virtual time."""

import asyncio

import pytest

from remuda.lib.clock import VirtualClock, settle
from remuda.lib.waiting import LightEvent, wait_for_any_event, wait_for_event


@pytest.mark.parametrize("seconds", [None, 0.0, -1.0, 60.0])
async def test_a_wait_for_a_set_event_returns_at_once(seconds: float | None) -> None:
    event = asyncio.Event()
    event.set()
    assert await wait_for_event(event, within_seconds=seconds)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_a_wait_without_time_for_an_unset_event_returns_false(seconds: float) -> None:
    assert not await wait_for_event(asyncio.Event(), within_seconds=seconds)


async def test_a_wait_ends_with_the_event_or_at_its_time_limit() -> None:
    clock, event = VirtualClock(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        early = group.create_task(wait_for_any_event(clock, event, within_seconds=5, name="early"))
        late = group.create_task(wait_for_any_event(clock, event, within_seconds=20, name="late"))
        await clock.advance(10)
        assert early.done()
        assert not late.done()
        event.set()
    assert (early.result(), late.result()) == (False, True)


async def test_a_cancelled_wait_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    waiting = asyncio.ensure_future(
        wait_for_any_event(VirtualClock(), asyncio.Event(), within_seconds=5, name="cancelled")
    )
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asyncio.all_tasks() == before


async def test_a_light_event_wakes_all_waiting_tasks_but_cancelled_ones() -> None:
    event = LightEvent()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(event.wait()) for _ in range(3)]
        await settle()
        waiting[0].cancel()
        await settle()
        event.set()
        event.set()
    assert [task.cancelled() for task in waiting] == [True, False, False]
    assert event.is_set()
    assert await event.wait()
    event.clear()
    assert not await wait_for_event(event, within_seconds=0)
