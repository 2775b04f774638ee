"""Which slot a job gets."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from remuda.taskscaler.core.slots import Slot, Slots
from remuda.taskscaler.core.values import Instance, InstanceState, Limits


def some(*instances: Instance, warm_first: bool = True, **limits: int) -> Slots:
    slots = Slots({"": Limits(**limits)}, warm_first=warm_first)
    for instance in instances:
        slots.update(instance)
    return slots


def granted(slots: Slots) -> dict[str, Slot]:
    return {one.holder: one.slot for one in slots.grants()}


def take(slots: Slots, *holders: str, now: float = 0.0, caches: frozenset[str] = frozenset()) -> dict[str, Slot]:
    for holder in holders:
        slots.acquire(holder, now=now, caches=caches)
    return granted(slots)


def standing(slots: Slots, instance_id: str) -> Instance:
    return next(one for one in slots.instances if one.id == instance_id)


def test_the_fullest_instance_is_filled_first() -> None:
    slots = some(Instance(id="a"), Instance(id="b"), capacity_per_instance=2)
    assert take(slots, "1", "2", "3") == {"1": Slot("a", 0), "2": Slot("a", 1), "3": Slot("b", 0)}
    slots.release("1", now=5.0)
    slots.release("3", now=6.0)
    assert take(slots, "4") == {"4": Slot("a", 0)}


def test_of_empty_ones_the_one_used_last_so_that_others_can_go() -> None:
    slots = some(Instance(id="a"), Instance(id="b"), Instance(id="c"))
    take(slots, "1", "2", "3")
    for now, holder in enumerate(("2", "3", "1"), start=10):
        slots.release(holder, now=float(now))
    assert [take(slots, holder)[holder].instance for holder in ("4", "5", "6")] == ["a", "c", "b"]


def test_a_job_goes_where_its_caches_are_warm() -> None:
    slots = some(
        Instance(id="a", warm=frozenset({"x"})),
        Instance(id="b", warm=frozenset({"x", "y"})),
        Instance(id="c", slots_used=0),
        capacity_per_instance=2,
    )
    take(slots, "0")
    slots.release("0", now=1.0, warmed=["z"])
    at_z = next(one.id for one in slots.instances if "z" in one.warm)
    assert take(slots, "1", caches=frozenset({"x", "y"}))["1"].instance == "b"
    assert take(slots, "2", caches=frozenset({"z"}))["2"].instance == at_z
    assert take(slots, "3", caches=frozenset({"nowhere"}))["3"].instance in {"b", at_z}


def test_or_where_it_is_fullest_if_that_is_preferred() -> None:
    warm = Instance(id="w", warm=frozenset({"x"}))
    slots = some(Instance(id="a"), warm, warm_first=False, capacity_per_instance=2)
    take(slots, "1")
    assert take(slots, "2", caches=frozenset({"x"}))["2"].instance == "a"


def test_acquiring_twice_keeps_the_turn_and_takes_one_slot() -> None:
    slots = some(Instance(id="a"))
    slots.acquire("1", now=1.0)
    slots.acquire("2", now=2.0)
    slots.acquire("1", now=3.0)
    assert granted(slots) == {"1": Slot("a", 0)}
    slots.acquire("1", now=4.0)
    assert granted(slots) == {}


def test_releasing_twice_is_as_good_as_once() -> None:
    slots = some(Instance(id="a"), capacity_per_instance=2)
    take(slots, "1", "2")
    assert slots.release("1", now=1.0) == Slot("a", 0)
    assert slots.release("1", now=2.0) is None
    assert standing(slots, "a").slots_used == 1
    assert standing(slots, "a").idle_since is None
    slots.release("2", now=3.0)
    assert standing(slots, "a").idle_since == 3.0


def test_uses_are_counted_and_limited() -> None:
    slots = some(Instance(id="a"), capacity_per_instance=3, max_use_count=2)
    assert set(take(slots, "1", "2", "3")) == {"1", "2"}
    slots.release("1", now=1.0)
    assert granted(slots) == {}
    slots.release("2", now=1.0, is_used=False)  # it never began
    assert set(granted(slots)) == {"3"}


def test_adopting_takes_slots_over_without_a_use() -> None:
    slots = some(Instance(id="a", uses=4), capacity_per_instance=2, max_use_count=5)
    assert slots.adopt("1", Slot("a", 1))
    assert slots.adopt("1", Slot("a", 1))
    assert not slots.adopt("2", Slot("a", 1))
    assert not slots.adopt("1", Slot("a", 0))
    assert not slots.adopt("3", Slot("gone", 0))
    assert (standing(slots, "a").slots_used, standing(slots, "a").uses) == (1, 4)
    assert take(slots, "4") == {"4": Slot("a", 0)}


def test_a_changed_capacity_counts_for_adopted_ones_too() -> None:
    slots = some(Instance(id="a"), capacity_per_instance=1)
    assert slots.adopt("1", Slot("a", 3))
    assert take(slots, "2") == {}
    slots.change_limits({"": Limits(capacity_per_instance=2)})
    assert granted(slots) == {"2": Slot("a", 0)}


@pytest.mark.parametrize("state", [one for one in InstanceState if one is not InstanceState.READY])
def test_only_a_ready_instance_gets_jobs(state: InstanceState) -> None:
    slots = some(Instance(id="a", state=state))
    assert take(slots, "1") == {}
    slots.update(Instance(id="a", since=7.0))
    assert granted(slots) == {"1": Slot("a", 0)}


def test_a_lost_instance_ends_the_jobs_that_it_had_and_takes_no_other() -> None:
    slots = some(Instance(id="a", warm=frozenset({"x"})), capacity_per_instance=3)
    take(slots, "1", "2")
    assert slots.lose("a") == ("1", "2")
    assert slots.lose("a") == ()
    assert take(slots, "3", caches=frozenset({"x"})) == {}
    assert slots.instances == ()
    assert slots.release("1", now=1.0) is None


def test_a_wait_is_over_after_its_time_unless_a_slot_is_on_its_way() -> None:
    slots = some()
    for number in range(3):
        slots.acquire(f"{number}", now=float(number))
    assert slots.overdue(now=900.0, timeout_seconds=900.0, coming=0) == slots.waiters[:1]
    assert slots.overdue(now=901.0, timeout_seconds=900.0, coming=1) == slots.waiters[1:2]
    assert slots.overdue(now=9999.0, timeout_seconds=900.0, coming=3) == ()


class Life(RuleBasedStateMachine):
    """Anything may happen in any order; the books stay right."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = Limits(capacity_per_instance=2, max_use_count=5)
        self.slots = Slots({"": self.limits})
        self.now = 0.0
        self.has: dict[str, Slot] = {}

    holders = st.sampled_from([f"h{number}" for number in range(8)])
    names = st.sampled_from(["a", "b", "c"])

    @rule(name=names, state=st.sampled_from(InstanceState), failures=st.integers(0, 4))
    def see(self, name: str, state: InstanceState, failures: int) -> None:
        self.now += 1
        self.slots.update(Instance(id=name, state=state, failures=failures, since=self.now))

    @rule(name=names)
    def lose(self, name: str) -> None:
        lost = self.slots.lose(name)
        assert {holder for holder, slot in self.has.items() if slot.instance == name} == set(lost)
        for holder in lost:
            del self.has[holder]

    @rule(holder=holders)
    def acquire(self, holder: str) -> None:
        self.slots.acquire(holder, now=self.now, caches=["x"])

    @rule()
    def grant(self) -> None:
        for one in self.slots.grants():
            assert one.holder not in self.has
            assert one.slot not in self.has.values()
            self.has[one.holder] = one.slot

    @rule(holder=holders, is_used=st.booleans())
    def release(self, holder: str, is_used: bool) -> None:
        self.now += 1
        assert self.slots.release(holder, now=self.now, is_used=is_used, warmed=["x"]) == self.has.pop(holder, None)

    @rule(holder=holders)
    def stop_waiting(self, holder: str) -> None:
        self.slots.stop_waiting(holder)

    @invariant()
    def the_books_are_right(self) -> None:
        for instance in self.slots.instances:
            held = [slot for slot in self.has.values() if slot.instance == instance.id]
            assert len(held) == instance.slots_used <= self.limits.capacity
            assert {slot.number for slot in held} <= {0, 1}
            assert instance.uses <= self.limits.max_use_count
        assert not {one.holder for one in self.slots.waiters} & set(self.has)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
