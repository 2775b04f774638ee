"""Problems that users of other autoscalers report, one test each. The docstrings say what must hold here."""

from typing import Any

import pytest
from msgspec.structs import replace

from remuda.taskscaler.core.decisions import Plan, Reason
from remuda.taskscaler.core.plan import plan
from remuda.taskscaler.core.policy import Policy, PolicyRule, mistakes, resolve
from remuda.taskscaler.core.slots import Slot, Slots
from remuda.taskscaler.core.values import Cause, Demand, Fleet, Group, Instance, InstanceState, Limits, Request
from remuda.testing.fleets import START as NOW
from remuda.testing.fleets import World, a_demand, a_fleet, carry_out


def a_group(**limits: Any) -> Group:
    return Group(limits=Limits(**limits))


def removal_reasons(result: Plan) -> dict[str, Reason]:
    return {removal.id: removal.because.reason for removal in result.remove}


def idle_instance(name: str, seconds: float = 10_000.0) -> Instance:
    return Instance(id=name, created_at=NOW - seconds, idle_since=NOW - seconds)


def reservable(world: World) -> int:
    """Return the number of job requests that the last plan allows."""
    assert world.last is not None
    assert world.last.reservable is not None
    return world.last.reservable


def test_scales_to_zero() -> None:
    """After the last job and idle_time the group is empty and stays empty."""
    world = World(policy=Policy(idle_seconds=300.0))
    world.submit(5, seconds=60.0)
    world.run(200)
    assert world.count() == 5
    world.run(400)
    assert world.count() == 0
    created = world.created
    world.run(7200, tick=30)
    assert (world.count(), world.created) == (0, created)


def test_zero_with_many_slots() -> None:
    """With several slots for each instance and idle_count 0 the group becomes empty, too."""
    world = World(a_group(capacity_per_instance=4), policy=Policy(idle_seconds=300.0))
    world.submit(9, seconds=60.0)
    world.run(150)
    assert world.created == 3
    world.run(600)
    assert world.count() == 0


def test_one_idle_stays_one() -> None:
    """idle_count 1 keeps one idle instance after a job, not two."""
    world = World(policy=Policy(idle_count=1, idle_seconds=120.0, preemptive=True))
    world.run(100)
    assert world.count(InstanceState.READY) == 1
    world.submit(1, seconds=60.0)
    world.run(60)
    assert world.count() == 2
    world.run(600)
    assert world.count() == 1
    assert world.created == 2


def test_unused_healthy_not_replaced() -> None:
    """A healthy unused instance is not removed and created again."""
    world = World(policy=Policy(idle_count=3, idle_seconds=60.0))
    world.run(24 * 3600, tick=60)
    assert (world.created, world.removed) == (3, 0)


def test_long_polls_do_not_pin() -> None:
    """Ten idle long polls do not keep instances past idle_time."""
    world = World(policy=Policy(idle_count=2, idle_seconds=300.0, preemptive=True))
    world.submit(12, seconds=30.0)
    world.run(100)
    for _ in range(14):  # the server holds each poll for a minute; it is repeated if the plan allows it
        world.open_requests = min(10, reservable(world))
        world.run(60, tick=2)
    assert world.open_requests == 2
    assert world.count() == 2


def test_a_poll_that_never_ends_does_not_pin_either() -> None:
    world = World(policy=Policy(idle_count=1, idle_seconds=300.0, preemptive=True))
    world.submit(5, seconds=30.0)
    world.run(100)
    assert reservable(world) >= 5
    world.open_requests = 5
    world.run(900, tick=2)
    assert world.count() == 1


def test_long_polls_keep_their_slots_until_they_end() -> None:
    """In preemptive mode a job of a poll that is still open finds its slot."""
    policy = Policy(idle_count=1, idle_seconds=300.0, preemptive=True)
    due = NOW - 301.0
    fleet = a_fleet(*(replace(idle_instance(f"{n}"), idle_since=due) for n in range(4)), reserved=3)
    result = plan(fleet, Demand(), policy, NOW)
    assert len(result.remove) == 1
    assert result.reservable == 1
    assert [(hindrance.because.reason, hindrance.count) for hindrance in result.hindered] == [(Reason.RESERVED, 2)]
    assert len(plan(replace(fleet, reserved=1), Demand(), policy, NOW).remove) == 3


def test_demand_gone_runaway() -> None:
    """Instances that are lost under load do not cause a wave of new ones."""
    lost = [Instance(id=f"{n}", state=InstanceState.LOST, slots_used=1, uses=1) for n in range(50)]
    result = plan(a_fleet(*lost), a_demand(running=50), Policy(scale_factor=1.0), NOW)
    assert result.creation_count == 0
    assert {entry.because.reason for entry in result.forget} == {Reason.LOST}
    assert len(result.forget) == 50


@pytest.mark.parametrize("state", [state for state in InstanceState if state is not InstanceState.LOST])
@pytest.mark.parametrize("cause", Cause)
def test_never_above_max(state: InstanceState, cause: Cause) -> None:
    """max_instances holds in every state, unexpected and unknown-state instances included."""
    instances = [Instance(id=f"{n}", state=state, since=NOW, cause=cause) for n in range(3)]
    fleet = a_fleet(*instances, requests=[Request(count=1, asked_at=NOW)], max_instances=5)
    assert plan(fleet, a_demand(waiting=100), Policy(idle_count=100), NOW).creation_count == 1


def test_queue_before_idle_pool() -> None:
    """Waiting jobs get new capacity before the idle pool is refilled."""
    result = plan(a_fleet(max_instances=3), a_demand(waiting=2, ready=5), Policy(idle_count=10), NOW)
    (creation,) = result.create
    assert [because.reason for because in creation.because] == [Reason.WAITING_JOBS, Reason.READY_JOBS]
    world = World(a_group(max_instances=3), policy=Policy(idle_count=10, preemptive=True))
    world.submit(3, seconds=1000.0)
    world.run(60)
    assert len(world.began) == 3


def test_idle_on_top_of_pending() -> None:
    """idle_count is kept in addition to pending jobs."""
    assert plan(a_fleet(), a_demand(waiting=3), Policy(idle_count=2), NOW).creation_count == 5
    assert plan(a_fleet(), a_demand(ready=3), Policy(idle_count=2), NOW).creation_count == 5


def test_factor_below_one_works() -> None:
    """scale_factor 0.5 with 10 running jobs wants 5 idle instances; the limit caps the idle ones, not all."""
    running = [Instance(id=f"{n}", slots_used=1, uses=1) for n in range(10)]
    assert plan(a_fleet(*running), Demand(), Policy(scale_factor=0.5), NOW).creation_count == 5
    assert plan(a_fleet(*running), Demand(), Policy(scale_factor=0.5, scale_factor_limit=3), NOW).creation_count == 3
    assert plan(a_fleet(*running), Demand(), Policy(idle_count=2, scale_factor=0.1), NOW).creation_count == 2


def test_slow_delete_does_not_block() -> None:
    """A deletion that takes minutes does not delay the next removal."""
    world = World(policy=Policy(idle_seconds=60.0), delete_seconds=900.0)
    world.submit(1, seconds=10.0)
    world.submit(1, seconds=120.0)
    world.run(110)
    assert world.count(InstanceState.DELETING) == 1
    world.run(110)
    assert world.count(InstanceState.DELETING) == 2
    assert world.reasons[Reason.RETRIED] >= 1


def test_unlimited_throttle_creates() -> None:
    """A throttle limit of -1 without max_instances still creates."""
    assert plan(a_fleet(throttle_limit=-1), a_demand(waiting=500), Policy(), NOW).creation_count == 500


def test_backoff_from_last_failure() -> None:
    """Failures 30 seconds apart slow creation down; the first success ends the backoff."""
    group, request_count, now, pauses = Group(), 0, NOW, []
    last = now
    while now < NOW + 3600.0:
        result = plan(Fleet(groups=(group,)), a_demand(waiting=1), Policy(), now)
        if result.creation_count:
            assert result.creation_count == 1
            request_count += 1
            pauses.append(now - last)
            last = now
            now += 30.0
            group = replace(group, failures=group.failures + 1, failed_at=now)
        else:
            assert result.look_again_at is not None
            assert result.look_again_at > now
            now = result.look_again_at
    assert request_count < 15
    assert pauses == sorted(pauses)
    assert plan(Fleet(groups=(replace(group, failures=0),)), a_demand(waiting=1), Policy(), now).creation_count == 1


def test_request_withdrawn() -> None:
    """When demand ends, queued requests are withdrawn; sent requests stay."""
    queued = Request(count=3, asked_at=NOW, is_sent=False)
    sent = Request(count=2, asked_at=NOW - 1.0)
    fleet = a_fleet(requests=[queued, sent])
    result = plan(fleet, Demand(), Policy(), NOW)
    assert [(entry.because.reason, entry.count, entry.asked_at) for entry in result.forget] == [
        (Reason.WITHDRAWN, 3, NOW)
    ]
    assert carry_out(fleet, result, NOW).requests == (sent,)
    some = plan(fleet, a_demand(waiting=4), Policy(), NOW)
    assert [(entry.because.reason, entry.count) for entry in some.forget] == [(Reason.WITHDRAWN, 1)]
    assert not plan(fleet, a_demand(waiting=5), Policy(), NOW).forget


def test_undelivered_instance_expires() -> None:
    """An accepted request whose instance never appears frees its place and is reported."""
    fleet = a_fleet(requests=[Request(count=2, asked_at=NOW)], max_instances=2)
    assert plan(fleet, a_demand(waiting=2), Policy(), NOW + 599.0).is_empty
    late = plan(fleet, a_demand(waiting=2), Policy(), NOW + 600.0)
    assert [(entry.because.reason, entry.count) for entry in late.forget] == [(Reason.UNDELIVERED, 2)]
    assert late.creation_count == 2


def test_creating_forever_expires() -> None:
    """An instance stuck in creating is deleted after a limit, and another takes its place when it is gone."""
    world = World(a_group(max_instances=1), policy=Policy(), boot_seconds=1e9)
    world.submit(1, seconds=10.0)
    world.run(850)
    assert (world.created, world.removed) == (1, 0)
    world.run(100)
    assert world.reasons == {Reason.STUCK: 1}
    assert (world.created, world.most) == (2, 1)


def test_outside_all_periods_safe() -> None:
    """Outside of all periods no busy instance is removed, and a missing idle_time does not mean 0."""
    rules = [PolicyRule(periods=("* 8-17 * * mon-fri",), idle_count=3)]
    night = NOW - NOW % 86400 + 23 * 3600
    policy = resolve(rules, night)
    assert (policy.idle_count, policy.idle_seconds) == (0, 300.0)
    busy = Instance(id="busy", slots_used=1, uses=1, created_at=night - 9000.0)
    young = Instance(id="young", idle_since=night - 299.0)
    old = Instance(id="old", idle_since=night - 300.0)
    result = plan(a_fleet(busy, young, old), Demand(), policy, night)
    assert removal_reasons(result) == {"old": Reason.IDLE}
    assert not result.drain
    assert resolve([PolicyRule(idle_count=1)], NOW).idle_seconds == 300.0


def test_preemptive_with_zero_idle() -> None:
    """With idle_count 0 and preemptive mode no job is accepted without an instance. A policy under which none ever
    comes is reported."""
    rule = PolicyRule(idle_count=0, preemptive=True)
    policy = resolve([rule], NOW)
    assert plan(a_fleet(max_instances=9), Demand(), policy, NOW).reservable == 0
    assert mistakes([rule], has_demand=False)
    world = World(policy=policy)
    world.ready_jobs = lambda: 1
    world.run(40)
    assert reservable(world) == 1


def test_policy_reload_acts() -> None:
    """idle_count 0 in a reloaded file empties the pool without a restart."""
    world = World(policy=Policy(idle_count=5, idle_seconds=60.0, preemptive=True))
    world.run(300, tick=5)
    assert world.count() == 5
    world.policy = Policy(idle_count=0, idle_seconds=60.0)
    world.run(30)
    assert world.count() == 0


def test_never_removed_mid_job() -> None:
    """No scale-down, restart or change of policy or limits removes an instance with a job."""
    world = World(a_group(capacity_per_instance=2), policy=Policy(idle_count=4, idle_seconds=60.0))
    world.submit(7, seconds=3000.0)
    world.run(120)
    world.policy = Policy(idle_seconds=0.0)
    world.groups = (a_group(capacity_per_instance=1, max_instances=1, max_use_count=1),)
    world.slots.change_limits({"": world.groups[0].limits})
    world.run(600, tick=5)  # World fails if an instance with jobs is removed
    assert len(world.began) == 7
    assert world.count(InstanceState.DRAINING) == 3
    world.run(3600, tick=5)
    assert world.count() == 0


def test_accepted_means_capacity() -> None:
    """An accepted job does not fail by the acquire timeout while its instance is being created, however slow that
    is."""
    world = World(a_group(creation_seconds=7200.0), policy=Policy(), boot_seconds=3000.0)
    world.submit(3, seconds=10.0)
    world.run(2000, tick=10)
    result = world.last
    assert result is not None
    assert world.slots.overdue(now=world.now, timeout_seconds=900.0, coming=result.terms.coming) == ()
    assert len(world.slots.overdue(now=world.now, timeout_seconds=900.0, coming=0)) == 3
    world.run(1200, tick=10)
    assert not world.slots.waiters


def test_vanished_noticed_fast() -> None:
    """A lost machine gets no job from the moment that the loss is known, and it is not counted."""
    slots = Slots({"": Limits()})
    slots.update(Instance(id="gone"))
    slots.update(Instance(id="gone", state=InstanceState.LOST))
    slots.acquire("job", now=NOW)
    assert slots.grants() == ()
    assert plan(Fleet(instances=slots.instances), a_demand(waiting=1), Policy(), NOW).creation_count == 1


def test_dead_first_not_blocking() -> None:
    """One dead instance does not delay acquires on others."""
    slots = Slots({"": Limits()})
    slots.update(Instance(id="dead", failures=3, created_at=1.0))
    slots.update(Instance(id="well", created_at=2.0))
    slots.acquire("job", now=NOW)
    assert [grant.slot.instance for grant in slots.grants()] == ["well"]


def test_wake_not_poll() -> None:
    """A waiting acquire gets a freed slot at once."""
    slots = Slots({"": Limits()})
    slots.update(Instance(id="a"))
    slots.acquire("first", now=NOW)
    slots.acquire("second", now=NOW)
    assert [grant.holder for grant in slots.grants()] == ["first"]
    slots.release("first", now=NOW)
    assert [grant.holder for grant in slots.grants()] == ["second"]


def test_unhealthy_gets_no_job() -> None:
    """After the failure threshold no slot is given and the instance is replaced."""
    slots = Slots({"": Limits(capacity_per_instance=2)})
    slots.update(Instance(id="a"))
    slots.acquire("first", now=NOW)
    slots.grants()
    slots.update(replace(slots.instances[0], failures=3))
    slots.acquire("second", now=NOW)
    assert slots.grants() == ()
    result = plan(Fleet(instances=slots.instances), a_demand(waiting=1), Policy(), NOW)
    assert result.creation_count == 1
    assert [(entry.id, entry.because.reason) for entry in result.drain] == [("a", Reason.UNHEALTHY)]
    slots.release("first", now=NOW)
    result = plan(Fleet(instances=slots.instances), a_demand(), Policy(), NOW)
    assert removal_reasons(result) == {"a": Reason.UNHEALTHY}


def test_restart_keeps_all() -> None:
    """A restart keeps idle and busy instances and use counts."""
    instances = [
        Instance(id="busy", uses=3, cause=Cause.PREEXISTED),
        Instance(id="idle", cause=Cause.PREEXISTED, since=NOW),
    ]
    slots = Slots({"": Limits(max_use_count=4)})
    for instance in instances:
        slots.update(instance)
    assert slots.adopt("job", Slot("busy", 0))
    result = plan(a_fleet(*slots.instances, max_use_count=4), Demand(), Policy(), NOW)
    assert result.is_empty
    assert {instance.id: instance.uses for instance in slots.instances} == {"busy": 3, "idle": 0}


def test_out_of_sync_heals() -> None:
    """A group that was resized by hand: surplus instances are removed, missing ones are created."""
    unexpected = [replace(idle_instance(f"{n}", 0.0), cause=Cause.UNEXPECTED) for n in range(6)]
    result = plan(a_fleet(*unexpected, max_instances=4), Demand(), Policy(idle_count=2), NOW)
    assert set(removal_reasons(result).values()) == {Reason.OVER_LIMIT}
    assert len(result.remove) == 2
    assert plan(a_fleet(max_instances=4), Demand(), Policy(idle_count=2), NOW).creation_count == 2


def test_api_limits_slow_down() -> None:
    """A provider that refuses is asked less and less often, and for one instance at a time."""
    group = replace(Group(), failures=5, failed_at=NOW)
    result = plan(Fleet(groups=(group,)), a_demand(waiting=100), Policy(), NOW + 20.0)
    assert result.creation_count == 0
    assert result.look_again_at is not None
    later = plan(Fleet(groups=(group,)), a_demand(waiting=100), Policy(), result.look_again_at)
    assert later.creation_count == 1
    assert [hindrance.because.reason for hindrance in later.hindered] == [Reason.PROBING]


def test_unknown_state_creates_nothing() -> None:
    """An unknown state causes no creation and no removal, and no ready instance is removed in exchange."""
    unknown = Instance(id="odd", state=InstanceState.UNKNOWN, since=0.0)
    result = plan(a_fleet(unknown), a_demand(waiting=1), Policy(), NOW)
    assert result.is_empty
    assert [hindrance.because.reason for hindrance in result.hindered] == [Reason.UNKNOWN_STATE]
    assert plan(a_fleet(unknown, idle_instance("ready")), Demand(), Policy(idle_count=1), NOW).is_empty


def test_failed_update_keeps_scaling() -> None:
    """While Update fails, removal and hand-out go on, but nothing is created."""
    group = Group(is_current=False)
    instances = (idle_instance("old"), Instance(id="d", state=InstanceState.DELETING, since=NOW - 61.0))
    result = plan(Fleet(groups=(group,), instances=instances), Demand(), Policy(), NOW)
    assert removal_reasons(result) == {"old": Reason.IDLE, "d": Reason.RETRIED}
    result = plan(Fleet(groups=(group,), instances=(idle_instance("old"),)), a_demand(waiting=5), Policy(), NOW)
    assert result.creation_count == 0
    assert [hindrance.because.reason for hindrance in result.hindered] == [Reason.NOT_CURRENT]
    assert result.reservable == 1


def test_max_is_clamped_not_refused() -> None:
    """More demand than may be created is cut to the maximum, and the plan says so."""
    result = plan(a_fleet(max_instances=3), a_demand(waiting=50), Policy(), NOW)
    assert result.creation_count == 3
    assert [(hindrance.because.reason, hindrance.count) for hindrance in result.hindered] == [
        (Reason.MAX_INSTANCES, 47)
    ]
