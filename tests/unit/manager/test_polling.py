"""Waiting for slots."""

import asyncio

from remuda.lib.clock import settle
from remuda.manager.core.slots import Slot, Slots
from remuda.manager.polling import Room


async def test_slots_go_to_whoever_came_first() -> None:
    room = Room(Slots(concurrent=1, limits={}))
    first = await room.reserve("a")
    async with asyncio.TaskGroup() as group:
        second = group.create_task(room.reserve("b"))
        await settle()
        third = group.create_task(room.reserve("a"))
        await settle()
        assert not second.done()
        room.release(first)
        assert await second == Slot("b", 0)
        assert not third.done()
        room.release(second.result())
        assert await third == Slot("a", 0)


async def test_a_runner_at_its_limit_does_not_hold_up_another() -> None:
    room = Room(Slots(concurrent=5, limits={"a": 1}))
    await room.reserve("a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.reserve("a"))
        await settle()
        assert await room.reserve("b") == Slot("b", 0)
        waiting.cancel()


async def test_who_goes_away_leaves_no_slot_behind() -> None:
    room = Room(Slots(concurrent=1, limits={}))
    first = await room.reserve("a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.reserve("b"))
        await settle()
        room.release(first)  # the slot is given to the waiting one, which is cancelled before it wakes
        waiting.cancel()
    assert await room.reserve("c") == Slot("c", 0)


async def test_the_last_slot_of_several_runners_is_not_held() -> None:
    room = Room(Slots(concurrent=2, limits={}), runners=2)
    await room.reserve("a")
    assert room.may_hold()
    await room.reserve("b")
    assert not room.may_hold()
    alone = Room(Slots(concurrent=1, limits={}))
    await alone.reserve("a")
    assert alone.may_hold()
