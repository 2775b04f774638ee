"""Which instances a plan creates, removes and drains, and properties that hold for every plan."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.taskscaler.core.decisions import Plan, Reason
from remuda.taskscaler.core.explain import explain
from remuda.taskscaler.core.plan import idle_target, plan
from remuda.taskscaler.core.policy import Policy, policy_for_draining
from remuda.taskscaler.core.throttle import refill, whole_tokens
from remuda.taskscaler.core.values import (
    Bucket,
    Demand,
    Fleet,
    Group,
    Instance,
    InstanceState,
    KeyDemand,
    Limits,
    Request,
    Soon,
    free_slots,
)
from remuda.testing.fleets import World, a_demand, a_fleet, carry_out

NOW = 100_000.0


def busy(name: str, slots: int = 1, **more: object) -> Instance:
    return replace(Instance(id=name, slots_used=slots, uses=slots, created_at=1.0), **more)


def idle(name: str, seconds: float = 1000.0, **more: object) -> Instance:
    return replace(Instance(id=name, created_at=1.0, idle_since=NOW - seconds), **more)


def coming(name: str, seconds: float, **more: object) -> Instance:
    instance = Instance(id=name, state=InstanceState.CREATING, created_at=NOW - seconds, since=NOW - seconds)
    return replace(instance, **more)


def busy_instances(count: int, slots: int = 1) -> list[Instance]:
    return [busy(f"b{number}", slots) for number in range(count)]


def removed_ids(result: Plan) -> list[str]:
    return [entry.id for entry in result.remove]


def removal_reasons(result: Plan) -> dict[str, Reason]:
    removed = {entry.id: entry.because.reason for entry in result.remove}
    drained = {entry.id: entry.because.reason for entry in result.drain}
    return removed | drained


@pytest.mark.parametrize(
    ("policy", "acquired", "expected"),
    [
        (Policy(), 10, 0),
        (Policy(idle_count=2), 10, 2),
        (Policy(idle_count=2, scale_factor=0.5), 10, 5),
        (Policy(idle_count=7, scale_factor=0.5), 10, 7),
        (Policy(idle_count=2, scale_factor=0.5, scale_factor_limit=3), 10, 3),
        (Policy(idle_count=4, scale_factor=0.5, scale_factor_limit=3), 10, 4),
        (Policy(scale_factor=1.1), 10, 11),  # not 12, although 1.1 * 10 is a little above 11
        (Policy(scale_factor=0.1), 1, 1),
    ],
)
def test_idle_target(policy: Policy, acquired: int, expected: int) -> None:
    assert idle_target(policy, acquired) == expected


@pytest.mark.parametrize(
    ("fleet", "demand", "policy", "created"),
    [
        (a_fleet(), a_demand(), Policy(), 0),
        (a_fleet(), a_demand(waiting=3), Policy(), 3),
        (a_fleet(), a_demand(ready=3), Policy(), 3),
        (a_fleet(), a_demand(running=3), Policy(), 0),
        (a_fleet(), a_demand(waiting=3), Policy(idle_count=2), 5),
        (a_fleet(capacity_per_instance=4), a_demand(waiting=3), Policy(idle_count=2), 2),
        (a_fleet(capacity_per_instance=4, max_use_count=1), a_demand(waiting=3), Policy(), 3),
        (a_fleet(max_instances=2), a_demand(waiting=3), Policy(), 2),
        (a_fleet(quota=1, max_instances=2), a_demand(waiting=3), Policy(), 1),
        (a_fleet(max_creating=2), a_demand(waiting=3), Policy(), 2),
        (a_fleet(*busy_instances(10)), a_demand(), Policy(idle_count=2, scale_factor=0.5), 5),
        (a_fleet(*busy_instances(10)), a_demand(), Policy(idle_count=2, scale_factor=0.5, scale_factor_limit=3), 3),
        (a_fleet(*busy_instances(5, 2), capacity_per_instance=3), a_demand(waiting=5), Policy(), 0),
        (a_fleet(*busy_instances(5, 2), capacity_per_instance=3), a_demand(waiting=6), Policy(), 1),
        (a_fleet(requests=[Request(count=2, asked_at=NOW)]), a_demand(waiting=3), Policy(), 1),
        (a_fleet(Instance(id="c", state=InstanceState.CREATING, since=NOW)), a_demand(waiting=3), Policy(), 2),
        (a_fleet(Instance(id="d", state=InstanceState.DRAINING, slots_used=1)), a_demand(waiting=1), Policy(), 1),
        (a_fleet(busy("b", uses=3), capacity_per_instance=4, max_use_count=4), a_demand(waiting=2), Policy(), 1),
        (a_fleet(idle("i", failures=3)), a_demand(waiting=1), Policy(), 1),
        (a_fleet(idle("i", failures=2)), a_demand(waiting=1), Policy(), 0),
    ],
)
def test_creation_count(fleet: Fleet, demand: Demand, policy: Policy, created: int) -> None:
    assert plan(fleet, demand, policy, NOW).creation_count == created


def test_the_reasons_of_a_creation_begin_with_the_most_urgent() -> None:
    demand = a_demand(waiting=3, ready=2, soon=(Soon(jobs=4),))
    result = plan(a_fleet(idle("i"), max_instances=8), demand, Policy(idle_count=5), NOW)
    (creation,) = result.create
    assert [(because.reason, because.numbers["slots"]) for because in creation.because] == [
        (Reason.WAITING_JOBS, 2),
        (Reason.READY_JOBS, 2),
        (Reason.SOON_JOBS, 3),
    ]
    assert [(entry.because.reason, entry.count) for entry in result.hindered] == [(Reason.MAX_INSTANCES, 6)]
    assert result.terms.missing == 13


@pytest.mark.parametrize(
    ("soon", "ending", "acquired", "expected"),
    [
        ((Soon(jobs=4, ready_in_seconds=60.0),), 0, 0, 4),
        ((Soon(jobs=4, ready_in_seconds=61.0),), 0, 0, 0),
        ((Soon(jobs=4, ready_in_seconds=60.0, chance=0.5),), 0, 0, 2),
        ((Soon(jobs=1, ready_in_seconds=60.0, chance=0.4),), 0, 0, 0),
        ((Soon(jobs=10),), 1, 1, 9),  # one of them gets the slot of the job that they wait for
        ((Soon(jobs=10),), 5, 1, 9),  # the other four run elsewhere
        ((Soon(jobs=1),), 5, 5, 0),
    ],
)
def test_jobs_ready_as_soon_as_an_instance(soon: tuple[Soon, ...], ending: int, acquired: int, expected: int) -> None:
    fleet = replace(a_fleet(*busy_instances(acquired)), groups=(Group(boot_seconds=60.0),))
    assert plan(fleet, a_demand(soon=soon, ending=ending), Policy(), NOW).creation_count == expected


def test_an_instance_for_one_job_leaves_no_slot_for_the_next() -> None:
    fleet = a_fleet(busy("b"), max_use_count=1)
    assert plan(fleet, a_demand(soon=(Soon(jobs=1),), ending=1), Policy(), NOW).creation_count == 1


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        (idle("i", 300.0), Reason.IDLE),
        (idle("i", 299.0), None),
        (Instance(id="i", since=NOW - 300.0), Reason.IDLE),
        (Instance(id="i", since=NOW - 299.0), None),
        (busy("i"), None),
        (idle("i", 0.0, uses=5), Reason.USED_UP),
        (busy("i", uses=5), None),
        (idle("i", 0.0, failures=3), Reason.UNHEALTHY),
        (busy("i", failures=3), Reason.UNHEALTHY),
        (idle("i", 0.0, state=InstanceState.FAILED), Reason.FAILED),
        (idle("i", 0.0, state=InstanceState.DRAINING), Reason.DRAINED),
        (busy("i", state=InstanceState.DRAINING), None),
        (Instance(id="i", state=InstanceState.CREATING, since=NOW - 900.0), Reason.STUCK),
        (Instance(id="i", state=InstanceState.CREATING, since=NOW - 899.0), None),
        (Instance(id="i", state=InstanceState.CREATING, since=NOW - 900.0, slots_used=1), None),
        (Instance(id="i", state=InstanceState.DELETING, since=NOW - 60.0), Reason.RETRIED),
        (Instance(id="i", state=InstanceState.DELETING, since=NOW - 59.0), None),
        (Instance(id="i", state=InstanceState.UNKNOWN, since=0.0), None),
        (idle("i", owner="another"), None),
        (idle("i", owner="we"), Reason.IDLE),
        (idle("i", group="not configured"), None),
    ],
)
def test_reasons_to_remove_an_instance(instance: Instance, expected: Reason | None) -> None:
    fleet = replace(a_fleet(instance, max_use_count=5), owner="we")
    result = plan(fleet, Demand(), Policy(idle_seconds=300.0), NOW)
    assert removal_reasons(result) == ({} if expected is None else {"i": expected})
    assert [entry.id for entry in result.drain] == (["i"] if instance.is_busy and expected else [])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (idle("a", 900.0), idle("b", 800.0)),
        (idle("a", 900.0, created_at=5.0), idle("b", 900.0, created_at=6.0)),
        (idle("a", 900.0, uses=5), idle("b", 900.0, uses=4)),
        (idle("a", 900.0), idle("b", 900.0)),
        (idle("b", 100.0), idle("a", 900.0, warm=frozenset({"group/project"}))),
        # Caches are named by project; the demand's capability keys, such as "linux", say nothing about them.
        (idle("a", 900.0, warm=frozenset({"linux"})), idle("b", 100.0, warm=frozenset({"group/project"}))),
        (idle("b", 100.0, group="fallback"), idle("a", 900.0, group="first")),
    ],
)
def test_order_of_removal(first: Instance, second: Instance) -> None:
    groups = (Group(name=""), Group(name="first"), Group(name="fallback"))
    fleet = Fleet(groups=groups, instances=(second, first))
    demand = a_demand(running=1)
    assert removed_ids(plan(fleet, demand, Policy(idle_count=1, idle_seconds=60.0), NOW)) == [first.id]
    assert removed_ids(plan(fleet, demand, Policy(idle_seconds=60.0), NOW)) == [first.id, second.id]


def test_draining_and_unhealthy_instances_are_removed_before_idle_ones_are_counted() -> None:
    fleet = a_fleet(idle("a"), idle("b", state=InstanceState.DRAINING), idle("c", failures=3))
    assert removed_ids(plan(fleet, Demand(), Policy(idle_count=1), NOW)) == ["b", "c"]


def test_an_instance_in_creation_does_not_make_a_ready_one_superfluous() -> None:
    fleet = a_fleet(idle("a"), Instance(id="c", state=InstanceState.CREATING, since=NOW))
    assert plan(fleet, Demand(), Policy(idle_count=1), NOW).is_empty


def test_an_ending_fleet_removes_instances_in_creation_that_no_job_waits_for() -> None:
    fleet = a_fleet(
        busy("busy"),
        coming("old", 60.0),
        coming("young", 10.0),
        coming("another's", 10.0, owner="s_1/other"),
        coming("taken", 5.0, slots_used=1),
        idle("idle", 10.0),
    )
    fleet = replace(fleet, owner="s_1/mine")
    ending = policy_for_draining(Policy(), is_ending=True)
    assert removed_ids(plan(fleet, Demand(), policy_for_draining(Policy()), NOW)) == []
    result = plan(fleet, Demand(), ending, NOW)
    assert removal_reasons(result) == {"young": Reason.UNAWAITED, "old": Reason.UNAWAITED}
    # The idle instance is for one of the waiting jobs.
    assert removed_ids(plan(fleet, a_demand(waiting=2), ending, NOW)) == ["young"]
    assert removed_ids(plan(fleet, a_demand(waiting=3), ending, NOW)) == []


def test_over_the_limit_idle_instances_are_removed_and_busy_ones_drained() -> None:
    creating = Instance(id="c", state=InstanceState.CREATING, since=NOW)
    fleet = a_fleet(busy("x", 2), busy("y", 1), idle("i", 0.0), creating, capacity_per_instance=2, max_instances=1)
    result = plan(fleet, a_demand(waiting=5), Policy(idle_seconds=600.0), NOW)
    assert removed_ids(result) == ["i", "c"]
    assert [entry.id for entry in result.drain] == ["y"]
    assert set(removal_reasons(result).values()) == {Reason.OVER_LIMIT}
    assert not result.create


def test_a_maximum_of_the_whole_fleet() -> None:
    groups = (Group(name="a", limits=Limits(max_instances=3)), Group(name="b"))
    fleet = Fleet(groups=groups, max_instances=4)
    result = plan(fleet, a_demand(waiting=9), Policy(), NOW)
    assert [(creation.group, creation.count) for creation in result.create] == [("a", 3), ("b", 1)]
    assert result.terms.max_instances == 4
    assert result.reservable == 4


FULL = Limits(max_instances=1)


@pytest.mark.parametrize(
    ("first", "expected", "hindrance"),
    [
        (Group(name="spot"), {"spot": 4}, None),
        (Group(name="spot", limits=FULL), {"spot": 1, "dear": 3}, Reason.MAX_INSTANCES),
        (Group(name="spot", limits=Limits(quota=0)), {"dear": 4}, Reason.QUOTA),
        (Group(name="spot", limits=Limits(quota=3, capacity_per_instance=1)), {"spot": 3, "dear": 1}, Reason.QUOTA),
        (Group(name="spot", is_current=False), {"dear": 4}, Reason.NOT_CURRENT),
        (Group(name="spot", failures=1, failed_at=NOW - 5.0), {"dear": 4}, Reason.BACKING_OFF),
        (Group(name="spot", failures=1, failed_at=NOW - 11.0), {"spot": 4}, None),
        (Group(name="spot", failures=3, failed_at=NOW - 900.0), {"spot": 1, "dear": 3}, Reason.PROBING),
        (Group(name="spot", bucket=Bucket(tokens=1.5, at=NOW)), {"spot": 1}, Reason.THROTTLED),
        (Group(name="spot", limits=Limits(max_creating=2)), {"spot": 2}, Reason.MAX_CREATING),
        (
            Group(name="spot", limits=Limits(max_instances=2), bucket=Bucket(tokens=1.0, at=NOW)),
            {"spot": 1, "dear": 2},
            Reason.MAX_INSTANCES,
        ),
    ],
)
def test_next_group_creates_what_first_cannot(first: Group, expected: dict[str, int], hindrance: Reason | None) -> None:
    result = plan(Fleet(groups=(first, Group(name="dear"))), a_demand(waiting=4), Policy(), NOW)
    assert {creation.group: creation.count for creation in result.create} == expected
    assert [entry.because.reason for entry in result.hindered][:1] == ([hindrance] if hindrance else [])


def test_the_throttle_bucket_is_part_of_the_plan() -> None:
    fleet = a_fleet(throttle_limit=2, throttle_burst=3)
    result = plan(fleet, a_demand(waiting=5), Policy(), NOW)
    assert result.creation_count == 3
    assert result.buckets == {"": Bucket(tokens=0.0, at=NOW)}
    assert result.look_again_at == NOW + 0.5
    later = replace(
        fleet,
        groups=(replace(fleet.groups[0], bucket=result.buckets[""]),),
        requests=(Request(count=3, asked_at=NOW),),
    )
    assert plan(later, a_demand(waiting=5), Policy(), NOW + 0.4).creation_count == 0
    assert plan(later, a_demand(waiting=5), Policy(), NOW + 0.5).creation_count == 1


@pytest.mark.parametrize(
    ("fleet", "policy", "reservable"),
    [
        (a_fleet(), Policy(), None),
        (a_fleet(max_instances=5, capacity_per_instance=2), Policy(), 10),
        (a_fleet(busy("b"), max_instances=5, capacity_per_instance=2), Policy(), 9),
        (a_fleet(busy("b"), max_instances=1, capacity_per_instance=2), Policy(), 1),
        (a_fleet(idle("a", 0.0), busy("b"), max_instances=9), Policy(idle_count=1, preemptive=True), 1),
        (a_fleet(max_instances=9), Policy(preemptive=True), 0),
        (a_fleet(requests=[Request(count=2, asked_at=NOW)], max_instances=2), Policy(), 2),
    ],
)
def test_reservable_slots(fleet: Fleet, policy: Policy, reservable: int | None) -> None:
    assert plan(fleet, Demand(), policy, NOW).reservable == reservable


def test_a_group_that_does_not_answer_offers_no_more_than_it_has_ready() -> None:
    group = Group(limits=Limits(max_instances=9), is_current=False)
    fleet = Fleet(groups=(group,), instances=(idle("a", 0.0),), requests=(Request(count=2, asked_at=NOW),))
    assert plan(fleet, Demand(), Policy(), NOW).reservable == 1


@pytest.mark.parametrize(
    ("fleet", "demand", "policy", "seconds"),
    [
        (a_fleet(), Demand(), Policy(), None),
        (a_fleet(), Demand(), Policy(until=NOW + 17.0), 17.0),
        (a_fleet(idle("i", 100.0)), Demand(), Policy(idle_seconds=300.0), 200.0),
        (a_fleet(idle("i", 100.0)), Demand(), Policy(idle_count=1, idle_seconds=300.0), None),
        (a_fleet(Instance(id="c", state=InstanceState.CREATING, since=NOW - 100.0)), Demand(), Policy(), 800.0),
        (a_fleet(Instance(id="d", state=InstanceState.DELETING, since=NOW - 50.0)), Demand(), Policy(), 10.0),
        (a_fleet(requests=[Request(asked_at=NOW - 100.0)]), Demand(), Policy(), 500.0),
        (
            Fleet(groups=(Group(failures=1, failed_at=NOW - 4.0),)),
            a_demand(waiting=1),
            Policy(),
            6.0,
        ),
    ],
)
def test_when_to_look_again(fleet: Fleet, demand: Demand, policy: Policy, seconds: float | None) -> None:
    assert plan(fleet, demand, policy, NOW).look_again_at == (None if seconds is None else NOW + seconds)


def test_the_keys_with_most_demand_are_named() -> None:
    keys = tuple(KeyDemand(key=f"k{number}", ready=number) for number in range(8))
    result = plan(a_fleet(), Demand(keys=(*keys, KeyDemand(key="k9", waiting=7))), Policy(), NOW)
    assert result.keys == (("k7", 7), ("k9", 7), ("k6", 6), ("k5", 5), ("k4", 4))


def test_requests_of_a_group_that_is_gone_are_forgotten() -> None:
    result = plan(a_fleet(requests=[Request(group="gone", asked_at=NOW)]), a_demand(waiting=1), Policy(), NOW)
    assert [entry.because.reason for entry in result.forget] == [Reason.WITHDRAWN]
    assert result.creation_count == 1


GROUPS = ("first", "fallback")
KEYS = ("linux", "windows")

counts = st.integers(0, 6)
times = st.sampled_from([NOW - 5000.0, NOW - 700.0, NOW - 100.0, NOW - 30.0, NOW])
limits = st.builds(
    Limits,
    max_instances=counts,
    capacity_per_instance=st.integers(0, 4),
    max_use_count=counts,
    max_creating=counts,
    throttle_limit=st.sampled_from([-1.0, 0.0, 0.5, 3.0]),
    throttle_burst=counts,
    quota=st.none() | counts,
)
groups = st.tuples(
    *(
        st.builds(
            Group,
            name=st.just(name),
            limits=limits,
            bucket=st.none() | st.builds(Bucket, tokens=st.floats(0, 5), at=times),
            failures=st.integers(0, 4),
            failed_at=times,
            is_current=st.booleans(),
        )
        for name in GROUPS
    )
)
instances = st.lists(
    st.builds(
        Instance,
        id=st.integers(0, 9999).map(str),
        group=st.sampled_from([*GROUPS, "unconfigured"]),
        state=st.sampled_from([*InstanceState, *[InstanceState.READY] * 6]),
        since=times,
        slots_used=st.sampled_from([0, 0, 0, 1, 2, 5]),
        uses=st.integers(0, 7),
        created_at=times,
        idle_since=st.none() | times,
        warm=st.frozensets(st.sampled_from(KEYS)),
        failures=st.sampled_from([0, 0, 0, 2, 3]),
        owner=st.sampled_from(["", "we", "we", "another"]),
    ),
    max_size=12,
    unique_by=lambda instance: instance.id,
)
requests = st.lists(
    st.builds(Request, group=st.sampled_from(GROUPS), count=counts, asked_at=times, is_sent=st.booleans()),
    max_size=3,
    unique_by=lambda request: (request.group, request.asked_at),
)
fleets = st.builds(
    Fleet,
    groups=groups,
    instances=instances.map(tuple),
    requests=requests.map(tuple),
    reserved=counts,
    max_instances=st.sampled_from([0, 0, 3, 8]),
    owner=st.sampled_from(["", "we"]),
)
soon = st.builds(Soon, jobs=counts, ready_in_seconds=st.floats(0, 300), chance=st.floats(0, 1))
keys = st.builds(
    KeyDemand,
    key=st.sampled_from(KEYS),
    running=counts,
    ending=counts,
    ready=counts,
    waiting=counts,
    soon=st.lists(soon, max_size=2).map(tuple),
)
demands = st.builds(Demand, keys=st.lists(keys, max_size=3).map(tuple))
working_policies = st.builds(
    Policy,
    idle_count=counts,
    idle_seconds=st.sampled_from([0.0, 60.0, 600.0]),
    scale_factor=st.sampled_from([0.0, 0.5, 1.5]),
    scale_factor_limit=counts,
    preemptive=st.booleans(),
)
policies = st.one_of(working_policies, st.builds(policy_for_draining, working_policies, is_ending=st.booleans()))
"""Policies of fleets that request jobs, and of those that drain or end, which want no idle slots."""
often = settings(max_examples=150, deadline=None)


def occupied_places(fleet: Fleet, result: Plan, group: str | None) -> int:
    """Count the places that are occupied while no removed instance has left yet. Forgotten instances and requests do
    not count."""
    lost = {entry.id for entry in result.forget if entry.id}
    forgotten_requests = sum(entry.count for entry in result.forget if not entry.id and group in (None, entry.group))
    present = [instance for instance in fleet.instances if instance.group in GROUPS and instance.id not in lost]
    requested = sum(request.count for request in fleet.requests if group in (None, request.group))
    return sum(group in (None, instance.group) for instance in present) + requested - forgotten_requests


@often
@given(fleets, demands, policies)
def test_a_plan_never_exceeds_a_limit(fleet: Fleet, demand: Demand, policy: Policy) -> None:
    result = plan(fleet, demand, policy, NOW)
    for group in fleet.groups:
        created = sum(creation.count for creation in result.create if creation.group == group.name)
        assert created >= 0
        if not created:
            continue
        places = occupied_places(fleet, result, group.name) + created
        assert not group.limits.max_instances or places <= group.limits.max_instances
        assert group.limits.quota is None or places <= group.limits.quota
        assert group.is_current
        bucket = refill(group, NOW)
        if bucket is not None:
            assert created <= whole_tokens(bucket)
            assert result.buckets[group.name].tokens > -1e-6
    if result.create and fleet.max_instances:
        assert occupied_places(fleet, result, None) + result.creation_count <= fleet.max_instances


@often
@given(fleets, demands, policies)
def test_a_plan_removes_no_busy_instance_nor_one_of_unknown_state(fleet: Fleet, demand: Demand, policy: Policy) -> None:
    result = plan(fleet, demand, policy, NOW)
    instances_by_id = {instance.id: instance for instance in fleet.instances}
    gone = [instances_by_id[removal.id] for removal in result.remove]
    assert len({entry.id for entry in gone} | {entry.id for entry in result.drain}) == len(gone) + len(result.drain)
    for instance in gone:
        assert not instance.is_busy
        assert instance.state not in (InstanceState.UNKNOWN, InstanceState.LOST)
        assert not (fleet.owner and instance.owner and instance.owner != fleet.owner)
    for entry in result.drain:
        assert instances_by_id[entry.id].is_busy


@often
@given(fleets, demands, policies)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(fleet: Fleet, demand: Demand, policy: Policy) -> None:
    result = plan(fleet, demand, policy, NOW)
    assert result == plan(fleet, demand, policy, NOW)
    assert explain(result, now=NOW)
    again = plan(carry_out(fleet, result, NOW), demand, policy, NOW)
    assert again.is_empty, explain(again, now=NOW)


def idle_slots_removed(fleet: Fleet, result: Plan) -> int:
    of_group = {group.name: group.limits for group in fleet.groups}
    idle = {removal.id for removal in result.remove if removal.because.reason is Reason.IDLE}
    return sum(free_slots(instance, of_group[instance.group]) for instance in fleet.instances if instance.id in idle)


def slots_created(fleet: Fleet, result: Plan) -> int:
    fresh = {group.name: group.limits.fresh for group in fleet.groups}
    return sum(creation.count * fresh[creation.group] for creation in result.create)


@often
@given(fleets, demands, policies, keys)
def test_demand_never_lessens_the_instances(fleet: Fleet, demand: Demand, policy: Policy, more: KeyDemand) -> None:
    policy = replace(policy, preemptive=False)
    less = plan(fleet, demand, policy, NOW)
    # Jobs that end are less demand, not more.
    grown = plan(fleet, Demand(keys=(*demand.keys, replace(more, ending=0))), policy, NOW)
    assert slots_created(fleet, grown) >= slots_created(fleet, less)
    assert idle_slots_removed(fleet, grown) <= idle_slots_removed(fleet, less)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 12),
    st.integers(0, 4),
    st.integers(1, 4),
    st.sampled_from([0, 4, 9]),
    st.integers(0, 6),
    policies,
    st.sampled_from([5.0, 45.0, 200.0]),
)
def test_plans_never_oscillate_on_constant_demand(
    jobs: int, ready: int, capacity: int, most: int, extra: int, policy: Policy, boot_seconds: float
) -> None:
    """With long jobs and some that always wait at the server, nothing is created after something was removed."""
    limits = Limits(capacity_per_instance=capacity, max_instances=most)
    world = World(Group(limits=limits), policy=policy, boot_seconds=boot_seconds)
    for number in range(extra):
        world.slots.update(Instance(id=f"extra-{number}", since=world.now, created_at=world.now))
    world.ready_jobs = lambda: ready
    world.submit(jobs, seconds=1e9)
    removed_count = created_after_removal = 0
    for _ in range(60):
        before = world.created
        world.run(10, tick=5)
        created_after_removal += world.created - before if removed_count else 0
        removed_count = world.removed - world.reasons[Reason.OVER_LIMIT]
    assert created_after_removal == 0
    world.run(900, tick=30)
    created_before, removed_before = world.created, world.removed
    world.run(3600, tick=60)
    assert (world.created, world.removed) == (created_before, removed_before)
    assert not most or world.most <= max(most, extra)


def test_a_steady_stream_of_jobs_creates_no_instance_twice() -> None:
    """A job of one minute is submitted every ten seconds: six slots are in use for hours."""
    world = World(Group(limits=Limits(capacity_per_instance=2)), policy=Policy(idle_count=2, idle_seconds=300.0))
    for _ in range(60):
        world.submit(1, seconds=60.0)
        world.run(10, tick=2)
    created = world.created
    for _ in range(360):
        world.submit(1, seconds=60.0)
        world.run(10, tick=2)
    assert world.created == created
    assert world.count() <= 5
