"""A fleet as a plan wants it, and in the numbers that dashboards show, whose words are upstream's. Pure."""

from collections import Counter

from remuda.fleeting.port import InstanceState as Shown
from remuda.taskscaler.decisions import Plan
from remuda.taskscaler.loop.asking import Phase
from remuda.taskscaler.loop.roster import Roster
from remuda.taskscaler.loop.setup import Gauges
from remuda.taskscaler.values import Fleet, InstanceState, free_slots

INSTANCE_STATES = ("requested", "pending", "creating", "running", "deleting", "suspending", "suspended", "resuming")
TASK_STATES = ("idle", "pending", "acquired", "reserved", "unavailable", "unhealthy")


def fleet_of(roster: Roster, now: float, *, reserved: int) -> Fleet:
    """As a plan wants it."""
    under_way: dict[str, list[float]] = {name: [] for name in roster.groups}
    for member in roster.members.values():
        if member.asked_at is not None and not (member.is_prepared or member.is_removing):
            under_way[member.group].append(now - member.asked_at)
    requests = [one for one in roster.asking.all.values() if one.missing]
    for one in requests:
        if one.group in under_way and one.phase is not Phase.QUEUED:
            under_way[one.group].append(now - one.asked_at)
    order = [one.name for one in roster.setup.groups if one.name in roster.groups]
    return Fleet(
        groups=tuple(roster.groups[name].as_group(under_way[name]) for name in order),
        instances=roster.slots.instances,
        requests=tuple(one.as_request() for one in requests),
        reserved=reserved,
        max_instances=roster.setup.max_instances,
        owner=roster.setup.owner,
    )


def gauges_of(roster: Roster, made: Plan, open_requests: int) -> Gauges:
    """After a plan."""
    instances = Counter(dict.fromkeys(INSTANCE_STATES, 0))
    tasks = Counter(dict.fromkeys(TASK_STATES, 0))
    for member in roster.members.values():
        shown = Shown.DELETING if member.is_removing else member.shown
        if shown is not None and shown.value in instances:
            instances[shown.value] += 1
    for asked in roster.asking.all.values():
        instances["requested" if asked.phase is Phase.QUEUED else "pending"] += asked.missing
    first = next(iter(roster.groups.values())).limits
    for one in roster.slots.instances:
        limits = roster.groups[one.group].limits
        tasks["acquired"] += one.slots_used
        free = free_slots(one, limits)
        if one.state is InstanceState.READY:
            is_well = not 0 < limits.failure_threshold <= one.failures
            tasks["idle" if is_well else "unhealthy"] += free
            tasks["unavailable"] += max(limits.capacity - one.slots_used - free, 0)
        elif one.state is not InstanceState.CREATING:
            tasks["unavailable"] += free
    tasks["pending"] = len(roster.slots.waiting)
    tasks["reserved"] = open_requests + len(roster.slots.waiting)
    return Gauges(
        instances=dict(instances),
        tasks=dict(tasks),
        max_instances=made.terms.max_instances,
        max_tasks_per_instance=first.capacity,
        max_use_count_per_instance=first.max_use_count,
        desired_instances=made.created - len(made.remove),
    )
