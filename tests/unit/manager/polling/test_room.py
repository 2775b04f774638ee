"""Reservation of slots for job requests, and which requests may be held."""

import asyncio

import pytest

from remuda.lib.clock import settle
from remuda.manager.core.slots import Slot
from remuda.manager.polling.room import Room


async def test_slots_are_given_in_the_order_of_requests() -> None:
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


async def test_a_runner_at_its_limit_does_not_block_others() -> None:
    room = Room(concurrent=5, limits={"a": 1, "b": 0})
    await room.reserve("a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.reserve("a"))
        await settle()
        assert await room.reserve("b") == Slot("b", 0)
        waiting.cancel()


async def test_a_cancelled_reservation_frees_its_slot() -> None:
    room = Room(concurrent=1, limits={"a": 0, "b": 0, "c": 0})
    first = await room.reserve("a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.reserve("b"))
        await settle()
        room.release(first)  # the slot goes to the waiting task, which is cancelled before it wakes
        waiting.cancel()
    assert await room.reserve("c") == Slot("c", 0)


async def test_a_full_environment_blocks_only_its_own_runner() -> None:
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
    with_job, without_job = await room.reserve("a"), await room.reserve("a")
    assert (room.requesting, room.free) == (2, 0)
    room.hand_over(with_job)
    room.give_back(with_job)
    room.give_back(without_job)
    assert (room.requesting, room.free) == (0, 1)


async def test_the_slot_that_another_runner_needs_is_not_held() -> None:
    room = Room(concurrent=2, limits={"a": 0, "b": 0, "c": 0})
    first = await room.reserve("a")
    assert not room.may_hold("a")  # two other runners have no open request, and one slot is free
    await room.reserve("b")
    assert not room.may_hold("b")
    room.release(first)
    alone = Room(concurrent=1, limits={"a": 0})
    await alone.reserve("a")
    assert alone.may_hold("a")


async def test_a_slot_may_be_held_if_all_other_runners_have_a_request_or_no_room() -> None:
    room = Room(concurrent=3, limits={"a": 0, "b": 0, "full": 1})
    room.hand_over(await room.reserve("full"))
    await room.reserve("a")
    assert room.may_hold("a")  # one slot is free for b
    await room.reserve("b")
    assert room.may_hold("b")


class HeldRequests:
    """Holds requests. When the room ends one, its slot is returned."""

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
    held = HeldRequests(room)
    first, other = await room.reserve("a"), await room.reserve("b")
    held.hold(first)
    held.hold(other)
    room.hand_over(other)  # b got a job and requests the next one
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.reserve("b"))
        await settle()
        assert held.ended == [first]
        assert await waiting == Slot("b", 1)
    next_reservation = asyncio.ensure_future(room.reserve("a"))
    await settle()
    assert not room.may_hold("b"), "a waits for a slot"
    assert held.ended == [first]
    next_reservation.cancel()


async def test_a_held_request_ends_for_a_new_runner() -> None:
    room = Room(concurrent=1, limits={"a": 0})
    held = HeldRequests(room)
    held.hold(await room.reserve("a"))
    room.change(concurrent=1, limits={"a": 0, "new": 0})
    assert await room.reserve("new") == Slot("new", 0)
    assert held.ended == [Slot("a", 0)]


async def test_a_held_request_ends_for_another_runner_of_a_full_environment() -> None:
    places = {"a": "here", "b": "here", "c": "there"}
    room = Room(concurrent=9, limits={"a": 0, "b": 0, "c": 0}, places=places)
    held = HeldRequests(room)
    other_environment = await room.reserve("c", lambda: 1)
    held.hold(other_environment)
    first = await room.reserve("a", lambda: 1)
    held.hold(first)
    assert await room.reserve("b", lambda: 1) == Slot("b", 0)
    assert held.ended == [first]
    assert not room.may_hold("b"), "a could send a request if b had none"


@pytest.mark.parametrize("capacity", [0, 1])
async def test_no_request_ends_for_a_runner_without_room(capacity: int) -> None:
    room = Room(concurrent=2, limits={"full": 0, "a": 0, "limited": 1})
    held = HeldRequests(room)
    room.adopt(Slot("full", 0))
    held.hold(await room.reserve("a"))
    full = asyncio.ensure_future(room.reserve("full", lambda: capacity))
    await settle()
    assert held.ended == []
    assert room.may_hold("a") is False, "the runner `limited` has no open request"
    full.cancel()
    await settle()


async def test_a_runner_with_an_open_request_does_not_end_others() -> None:
    room = Room(concurrent=2, limits={"a": 0, "b": 0})
    held = HeldRequests(room)
    held.hold(await room.reserve("a"))
    held.hold(await room.reserve("b"))
    more = asyncio.ensure_future(room.reserve("b"))
    await settle()
    assert held.ended == []
    more.cancel()
    await settle()


async def test_changed_limits_apply_at_once() -> None:
    room = Room(concurrent=1, limits={"a": 0})
    slot = await room.reserve("a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(room.reserve("a"))
        await settle()
        room.change(concurrent=2, limits={"a": 0})
        await waiting
    room.change(concurrent=1, limits={"a": 1})
    assert room.free == 0
    room.release(slot)
    assert room.free == 0  # the other job still runs


async def test_observers_receive_the_number_of_used_slots_of_their_environment() -> None:
    counts: list[int] = []
    room = Room(concurrent=3, limits={"one": 0, "two": 0}, places={"one": "here", "two": "here"})
    room.observers = {"one": counts.append, "two": counts.append}
    first = await room.reserve("one")
    room.hand_over(first)
    second = await room.reserve("two")
    room.give_back(second)
    room.adopt(Slot("two", 0))
    room.release(first)
    assert counts == [1, 2, 1, 2, 1]
