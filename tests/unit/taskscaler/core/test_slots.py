"""Which slot a job gets."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from remuda.taskscaler.core.slots import Slot, Slots
from remuda.taskscaler.core.values import Instance, InstanceState, Limits


def create_slots(*instances: Instance, warm_first: bool = True, **limits: int) -> Slots:
    slots = Slots({"": Limits(**limits)}, warm_first=warm_first)
    for instance in instances:
        slots.update(instance)
    return slots


def take_grants(slots: Slots) -> dict[str, Slot]:
    return {grant.holder: grant.slot for grant in slots.grants()}


def take(slots: Slots, *holders: str, now: float = 0.0, caches: frozenset[str] = frozenset()) -> dict[str, Slot]:
    for holder in holders:
        slots.acquire(holder, now=now, caches=caches)
    return take_grants(slots)


def find_instance(slots: Slots, instance_id: str) -> Instance:
    return next(instance for instance in slots.instances if instance.id == instance_id)


def test_the_fullest_instance_is_filled_first() -> None:
    slots = create_slots(Instance(id="a"), Instance(id="b"), capacity_per_instance=2)
    assert take(slots, "1", "2", "3") == {"1": Slot("a", 0), "2": Slot("a", 1), "3": Slot("b", 0)}
    slots.release("1", now=5.0)
    slots.release("3", now=6.0)
    assert take(slots, "4") == {"4": Slot("a", 0)}


def test_of_empty_instances_the_one_used_last_is_chosen() -> None:
    slots = create_slots(Instance(id="a"), Instance(id="b"), Instance(id="c"))
    take(slots, "1", "2", "3")
    for now, holder in enumerate(("2", "3", "1"), start=10):
        slots.release(holder, now=float(now))
    assert [take(slots, holder)[holder].instance for holder in ("4", "5", "6")] == ["a", "c", "b"]


def test_a_job_goes_where_its_caches_are_warm() -> None:
    slots = create_slots(
        Instance(id="a", warm=frozenset({"x"})),
        Instance(id="b", warm=frozenset({"x", "y"})),
        Instance(id="c", slots_used=0),
        capacity_per_instance=2,
    )
    take(slots, "0")
    slots.release("0", now=1.0, warmed=["z"])
    z_instance = next(instance.id for instance in slots.instances if "z" in instance.warm)
    assert take(slots, "1", caches=frozenset({"x", "y"}))["1"].instance == "b"
    assert take(slots, "2", caches=frozenset({"z"}))["2"].instance == z_instance
    assert take(slots, "3", caches=frozenset({"nowhere"}))["3"].instance in {"b", z_instance}


def test_without_warm_first_the_fullest_instance_is_preferred_to_a_warm_one() -> None:
    warm = Instance(id="w", warm=frozenset({"x"}))
    slots = create_slots(Instance(id="a"), warm, warm_first=False, capacity_per_instance=2)
    take(slots, "1")
    assert take(slots, "2", caches=frozenset({"x"}))["2"].instance == "a"


def test_acquiring_twice_keeps_the_turn_and_takes_one_slot() -> None:
    slots = create_slots(Instance(id="a"))
    slots.acquire("1", now=1.0)
    slots.acquire("2", now=2.0)
    slots.acquire("1", now=3.0)
    assert take_grants(slots) == {"1": Slot("a", 0)}
    slots.acquire("1", now=4.0)
    assert take_grants(slots) == {}


def test_releasing_twice_has_no_further_effect() -> None:
    slots = create_slots(Instance(id="a"), capacity_per_instance=2)
    take(slots, "1", "2")
    assert slots.release("1", now=1.0) == Slot("a", 0)
    assert slots.release("1", now=2.0) is None
    assert find_instance(slots, "a").slots_used == 1
    assert find_instance(slots, "a").idle_since is None
    slots.release("2", now=3.0)
    assert find_instance(slots, "a").idle_since == 3.0


def test_uses_are_counted_and_limited() -> None:
    slots = create_slots(Instance(id="a"), capacity_per_instance=3, max_use_count=2)
    assert set(take(slots, "1", "2", "3")) == {"1", "2"}
    slots.release("1", now=1.0)
    assert take_grants(slots) == {}
    slots.release("2", now=1.0, is_used=False)  # the job never started
    assert set(take_grants(slots)) == {"3"}


def test_adopting_does_not_count_as_a_use() -> None:
    slots = create_slots(Instance(id="a", uses=4), capacity_per_instance=2, max_use_count=5)
    assert slots.adopt("1", Slot("a", 1))
    assert slots.adopt("1", Slot("a", 1))
    assert not slots.adopt("2", Slot("a", 1))
    assert not slots.adopt("1", Slot("a", 0))
    assert not slots.adopt("3", Slot("gone", 0))
    assert (find_instance(slots, "a").slots_used, find_instance(slots, "a").uses) == (1, 4)
    assert take(slots, "4") == {"4": Slot("a", 0)}


def test_a_changed_capacity_counts_for_adopted_jobs_too() -> None:
    slots = create_slots(Instance(id="a"), capacity_per_instance=1)
    assert slots.adopt("1", Slot("a", 3))
    assert take(slots, "2") == {}
    slots.change_limits({"": Limits(capacity_per_instance=2)})
    assert take_grants(slots) == {"2": Slot("a", 0)}


@pytest.mark.parametrize("state", [state for state in InstanceState if state is not InstanceState.READY])
def test_only_a_ready_instance_gets_jobs(state: InstanceState) -> None:
    slots = create_slots(Instance(id="a", state=state))
    assert take(slots, "1") == {}
    slots.update(Instance(id="a", since=7.0))
    assert take_grants(slots) == {"1": Slot("a", 0)}


def test_a_lost_instance_ends_the_jobs_that_it_had_and_takes_no_other() -> None:
    slots = create_slots(Instance(id="a", warm=frozenset({"x"})), capacity_per_instance=3)
    take(slots, "1", "2")
    assert slots.lose("a") == ("1", "2")
    assert slots.lose("a") == ()
    assert take(slots, "3", caches=frozenset({"x"})) == {}
    assert slots.instances == ()
    assert slots.release("1", now=1.0) is None


def test_a_wait_times_out_unless_a_slot_is_being_created() -> None:
    slots = create_slots()
    for number in range(3):
        slots.acquire(f"{number}", now=float(number))
    assert slots.overdue(now=900.0, timeout_seconds=900.0, coming=0) == slots.waiters[:1]
    assert slots.overdue(now=901.0, timeout_seconds=900.0, coming=1) == slots.waiters[1:2]
    assert slots.overdue(now=9999.0, timeout_seconds=900.0, coming=3) == ()


class AnySequence(RuleBasedStateMachine):
    """Any sequence of calls leaves the slots consistent."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = Limits(capacity_per_instance=2, max_use_count=5)
        self.slots = Slots({"": self.limits})
        self.now = 0.0
        self.assigned: dict[str, Slot] = {}

    holders = st.sampled_from([f"h{number}" for number in range(8)])
    names = st.sampled_from(["a", "b", "c"])

    @rule(name=names, state=st.sampled_from(InstanceState), failures=st.integers(0, 4))
    def see(self, name: str, state: InstanceState, failures: int) -> None:
        self.now += 1
        self.slots.update(Instance(id=name, state=state, failures=failures, since=self.now))

    @rule(name=names)
    def lose(self, name: str) -> None:
        lost = self.slots.lose(name)
        assert {holder for holder, slot in self.assigned.items() if slot.instance == name} == set(lost)
        for holder in lost:
            del self.assigned[holder]

    @rule(holder=holders)
    def acquire(self, holder: str) -> None:
        self.slots.acquire(holder, now=self.now, caches=["x"])

    @rule()
    def grant(self) -> None:
        for grant in self.slots.grants():
            assert grant.holder not in self.assigned
            assert grant.slot not in self.assigned.values()
            self.assigned[grant.holder] = grant.slot

    @rule(holder=holders, is_used=st.booleans())
    def release(self, holder: str, is_used: bool) -> None:
        self.now += 1
        released = self.slots.release(holder, now=self.now, is_used=is_used, warmed=["x"])
        assert released == self.assigned.pop(holder, None)

    @rule(holder=holders)
    def stop_waiting(self, holder: str) -> None:
        self.slots.stop_waiting(holder)

    @invariant()
    def slots_are_consistent(self) -> None:
        for instance in self.slots.instances:
            used_slots = [slot for slot in self.assigned.values() if slot.instance == instance.id]
            assert len(used_slots) == instance.slots_used <= self.limits.capacity
            assert {slot.number for slot in used_slots} <= {0, 1}
            assert instance.uses <= self.limits.max_use_count
        assert not {waiter.holder for waiter in self.slots.waiters} & set(self.assigned)


TestAnySequence = AnySequence.TestCase
TestAnySequence.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
