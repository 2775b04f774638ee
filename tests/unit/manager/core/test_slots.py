"""Slots are limited per runner and in total, and no number is used twice."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.manager.core.slots import Slot, Slots


def test_the_lowest_free_number_is_taken() -> None:
    slots = Slots(concurrent=10, limits={})
    assert [slots.reserve("a"), slots.reserve("a"), slots.reserve("b")] == [Slot("a", 0), Slot("a", 1), Slot("b", 0)]
    slots.release(Slot("a", 0))
    slots.release(Slot("a", 0))
    assert slots.reserve("a") == Slot("a", 0)


def test_concurrent_and_limit_are_maximums() -> None:
    slots = Slots(concurrent=3, limits={"a": 1})
    assert slots.reserve("a")
    assert slots.reserve("a") is None
    assert slots.reserve("b")
    assert slots.reserve("b")
    assert slots.reserve("b") is None
    assert slots.free == 0


def test_jobs_of_an_earlier_process_keep_their_slots_even_beyond_a_lowered_limit() -> None:
    slots = Slots(concurrent=1, limits={})
    slots.adopt(Slot("a", 0))
    slots.adopt(Slot("a", 2))
    assert slots.free == 0
    assert slots.reserve("a") is None


def test_runners_of_one_environment_share_its_capacity() -> None:
    slots = Slots(concurrent=10, limits={}, places={"a": "there", "b": "there"})
    assert slots.reserve("a", 2)
    assert slots.reserve("b", 2)
    assert slots.reserve("a", 2) is None
    assert slots.reserve("c", 1) == Slot("c", 0)
    slots.change(concurrent=10, limits={}, places={"a": "elsewhere", "b": "there"})
    assert slots.reserve("b", 2) == Slot("b", 1)


def test_a_recovered_job_gets_another_slot_if_its_own_is_used() -> None:
    slots = Slots(concurrent=10, limits={})
    assert slots.reserve("a") == Slot("a", 0)
    assert slots.adopt(Slot("a", 0)) == Slot("a", 1)
    assert slots.adopt(Slot("a", 5)) == Slot("a", 5)
    assert [slots.reserve("a") for _ in range(4)] == [Slot("a", number) for number in (2, 3, 4, 6)]
    assert slots.free == 3


@given(st.lists(st.sampled_from(["reserve a", "reserve b", "release"])), st.integers(1, 4), st.integers(0, 3))
def test_no_slot_is_given_twice(operations: list[str], concurrent: int, limit: int) -> None:
    slots = Slots(concurrent=concurrent, limits={"a": limit})
    used: list[Slot] = []
    for operation in operations:
        if operation == "release":
            if used:
                slots.release(used.pop(0))
            continue
        slot = slots.reserve(operation[-1])
        if slot is not None:
            assert slot not in used
            numbers = {other.number for other in used if other.runner == slot.runner}
            assert slot.number == min(set(range(len(numbers) + 1)) - numbers)
            used.append(slot)
        assert len(used) == concurrent - slots.free <= concurrent
        assert not limit or sum(other.runner == "a" for other in used) <= limit
