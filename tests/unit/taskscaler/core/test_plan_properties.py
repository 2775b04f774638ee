"""Properties that hold for every plan."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.taskscaler.core.decisions import Plan, Reason
from remuda.taskscaler.core.explain import explain
from remuda.taskscaler.core.plan import plan
from remuda.taskscaler.core.policy import Policy
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
from remuda.testing.fleets import World, carry_out

NOW = 100_000.0
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
policies = st.builds(
    Policy,
    idle_count=counts,
    idle_seconds=st.sampled_from([0.0, 60.0, 600.0]),
    scale_factor=st.sampled_from([0.0, 0.5, 1.5]),
    scale_factor_limit=counts,
    preemptive=st.booleans(),
    is_ending=st.booleans(),
)
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
def test_a_plan_never_removes_a_busy_instance_nor_one_of_unknown_state(
    fleet: Fleet, demand: Demand, policy: Policy
) -> None:
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
def test_more_demand_never_creates_less_nor_removes_more(
    fleet: Fleet, demand: Demand, policy: Policy, more: KeyDemand
) -> None:
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
