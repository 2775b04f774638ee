"""Waiting for slots, and who may keep one for long."""

import asyncio

import pytest

from remuda.lib.clock import settle
from remuda.manager.core.slots import Slot
from remuda.manager.polling.room import Room


async def test_slots_go_to_whoever_came_first() -> None:
    room = Room(concurrent=1, limits={"a": 0, "b": 0})
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
    room = Room(concurrent=5, limits={"a": 1, "b": 0})
    await room.reserve("a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.reserve("a"))
        await settle()
        assert await room.reserve("b") == Slot("b", 0)
        waiting.cancel()


async def test_who_goes_away_leaves_no_slot_behind() -> None:
    room = Room(concurrent=1, limits={"a": 0, "b": 0, "c": 0})
    first = await room.reserve("a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.reserve("b"))
        await settle()
        room.release(first)  # the slot is given to the waiting one, which is cancelled before it wakes
        waiting.cancel()
    assert await room.reserve("c") == Slot("c", 0)


async def test_an_environment_without_room_holds_up_its_runner_alone() -> None:
    room = Room(concurrent=9, limits={"a": 0, "b": 0})
    capacity = 1
    room.hand_over(await room.reserve("a", lambda: capacity))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.reserve("a", lambda: capacity))
        await settle()
        assert not waiting.done()
        assert room.is_full("a", capacity)
        await room.reserve("b")
        capacity = 2
        room.serve()
        assert await waiting == Slot("a", 1)


async def test_a_job_keeps_the_slot_of_its_request() -> None:
    room = Room(concurrent=2, limits={"a": 0})
    taken, empty = await room.reserve("a"), await room.reserve("a")
    assert (room.requesting, room.free) == (2, 0)
    room.hand_over(taken)
    room.give_back(taken)
    room.give_back(empty)
    assert (room.requesting, room.free) == (0, 1)


async def test_the_slot_that_another_runner_needs_is_not_held() -> None:
    room = Room(concurrent=2, limits={"a": 0, "b": 0, "c": 0})
    first = await room.reserve("a")
    assert not room.may_hold("a")  # two others have no request open, and there is one slot
    await room.reserve("b")
    assert not room.may_hold("b")
    room.release(first)
    alone = Room(concurrent=1, limits={"a": 0})
    await alone.reserve("a")
    assert alone.may_hold("a")


async def test_a_slot_may_be_held_once_all_others_ask_too_or_cannot() -> None:
    room = Room(concurrent=3, limits={"a": 0, "b": 0, "full": 1})
    room.hand_over(await room.reserve("full"))
    await room.reserve("a")
    assert room.may_hold("a")  # one slot is left for b
    await room.reserve("b")
    assert room.may_hold("b")


class Held:
    """Requests that are held until they are told to hang up, which gives their slot back."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.ended: list[Slot] = []

    def hold(self, slot: Slot) -> None:
        def hang_up() -> None:
            self.ended.append(slot)
            asyncio.get_running_loop().call_soon(self._room.give_back, slot)

        self._room.hold(slot, hang_up)


async def test_a_held_request_ends_when_a_job_has_taken_the_room_of_another_runner() -> None:
    room = Room(concurrent=2, limits={"a": 0, "b": 0})
    held = Held(room)
    first, other = await room.reserve("a"), await room.reserve("b")
    held.hold(first)
    held.hold(other)
    room.hand_over(other)  # b got a job, and asks for the next one
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.reserve("b"))
        await settle()
        assert held.ended == [first]
        assert await waiting == Slot("b", 1)
    again = asyncio.ensure_future(room.reserve("a"))
    await settle()
    assert not room.may_hold("b"), "a waits for a slot"
    assert held.ended == [first]
    again.cancel()


async def test_a_held_request_ends_for_a_runner_that_is_new() -> None:
    room = Room(concurrent=1, limits={"a": 0})
    held = Held(room)
    held.hold(await room.reserve("a"))
    room.change(concurrent=1, limits={"a": 0, "new": 0})
    assert await room.reserve("new") == Slot("new", 0)
    assert held.ended == [Slot("a", 0)]


async def test_a_held_request_ends_for_another_runner_of_a_full_environment() -> None:
    places = {"a": "here", "b": "here", "c": "there"}
    room = Room(concurrent=9, limits={"a": 0, "b": 0, "c": 0}, places=places)
    held = Held(room)
    away = await room.reserve("c", lambda: 1)
    held.hold(away)
    first = await room.reserve("a", lambda: 1)
    held.hold(first)
    assert await room.reserve("b", lambda: 1) == Slot("b", 0)
    assert held.ended == [first]
    assert not room.may_hold("b"), "a could ask, if b did not"


@pytest.mark.parametrize("capacity", [0, 1])
async def test_no_request_ends_for_a_runner_that_could_have_no_job(capacity: int) -> None:
    room = Room(concurrent=2, limits={"full": 0, "a": 0, "limited": 1})
    held = Held(room)
    room.adopt(Slot("full", 0))
    held.hold(await room.reserve("a"))
    full = asyncio.ensure_future(room.reserve("full", lambda: capacity))
    await settle()
    assert held.ended == []
    assert room.may_hold("a") is False, "there is a runner with a limit that has no request open"
    full.cancel()
    await settle()


async def test_a_runner_that_asks_already_ends_nobody_elses_request() -> None:
    room = Room(concurrent=2, limits={"a": 0, "b": 0})
    held = Held(room)
    held.hold(await room.reserve("a"))
    held.hold(await room.reserve("b"))
    more = asyncio.ensure_future(room.reserve("b"))
    await settle()
    assert held.ended == []
    more.cancel()
    await settle()


async def test_other_limits_count_at_once() -> None:
    room = Room(concurrent=1, limits={"a": 0})
    held = await room.reserve("a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.reserve("a"))
        await settle()
        room.change(concurrent=2, limits={"a": 0})
        await waiting
    room.change(concurrent=1, limits={"a": 1})
    assert room.free == 0
    room.release(held)
    assert room.free == 0  # the other one still runs


async def test_who_makes_machines_hears_how_much_of_its_room_is_taken() -> None:
    heard: list[int] = []
    room = Room(concurrent=3, limits={"one": 0, "two": 0}, places={"one": "here", "two": "here"})
    room.observers = {"one": heard.append, "two": heard.append}
    first = await room.reserve("one")
    room.hand_over(first)
    second = await room.reserve("two")
    room.give_back(second)
    room.adopt(Slot("two", 0))
    room.release(first)
    assert heard == [1, 2, 1, 2, 1]
