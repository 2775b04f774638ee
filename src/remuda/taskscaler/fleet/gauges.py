"""Converts a `Roster` (state of a fleet) to a plan's input, and a plan to gauges named like GitLab Runner's. Pure."""

from collections import Counter
from collections.abc import Mapping

from remuda.fleeting.port import InstanceState as Shown
from remuda.taskscaler.core.decisions import Plan, Reason
from remuda.taskscaler.core.values import Fleet, Instance, InstanceState, free_slots
from remuda.taskscaler.fleet.requests import Phase
from remuda.taskscaler.fleet.roster import Roster
from remuda.taskscaler.fleet.setup import Gauges, GroupGauges

INSTANCE_STATES = ("requested", "pending", "creating", "running", "deleting", "suspending", "suspended", "resuming")
TASK_STATES = ("idle", "pending", "acquired", "reserved", "unavailable", "unhealthy")
MACHINE_USES = ("creating", "idle", "busy", "unavailable", "removing")
"""Uses of an instance, for the time that an instance spends in each."""
HINDRANCES = (
    Reason.MAX_INSTANCES,
    Reason.QUOTA,
    Reason.THROTTLED,
    Reason.MAX_CREATING,
    Reason.BACKING_OFF,
    Reason.PROBING,
    Reason.NOT_CURRENT,
)
"""Why wanted instances are not created."""


def fleet_of(roster: Roster, now: float, *, reserved: int) -> Fleet:
    """The fleet as input of a plan. `reserved`: slots reserved by open requests for jobs and by waiting jobs."""
    under_way: dict[str, list[float]] = {name: [] for name in roster.groups}
    for member in roster.members.values():
        if member.asked_at is not None and not (member.is_prepared or member.is_removing):
            under_way[member.group].append(now - member.asked_at)
    requests = [request for request in roster.requests.all.values() if request.missing]
    for request in requests:
        if request.group in under_way and request.phase is not Phase.QUEUED:
            under_way[request.group].append(now - request.asked_at)
    order = [group.name for group in roster.setup.groups if group.name in roster.groups]
    return Fleet(
        groups=tuple(roster.groups[name].as_group(under_way[name]) for name in order),
        instances=roster.slots.instances,
        requests=tuple(request.as_request() for request in requests),
        reserved=reserved,
        max_instances=roster.setup.max_instances,
        owner=roster.setup.owner,
    )


def gauges_of(
    roster: Roster, plan: Plan, open_requests: int, *, at: float = 0.0, starts: Mapping[str, int] | None = None
) -> Gauges:
    """The gauges after a plan. `open_requests`: number of unanswered requests for jobs; `at`: time of the monotonic
    clock; `starts`: how often each group's plugin was started."""
    instances = Counter(dict.fromkeys(INSTANCE_STATES, 0))
    tasks = Counter(dict.fromkeys(TASK_STATES, 0))
    for member in roster.members.values():
        shown = Shown.DELETING if member.is_removing else member.shown
        if shown is not None and shown.value in instances:
            instances[shown.value] += 1
    for request in roster.requests.all.values():
        instances["requested" if request.phase is Phase.QUEUED else "pending"] += request.missing
    first = next(iter(roster.groups.values())).limits
    for instance in roster.slots.instances:
        limits = roster.groups[instance.group].limits
        tasks["acquired"] += instance.slots_used
        free = free_slots(instance, limits)
        if instance.state is InstanceState.READY:
            is_well = not 0 < limits.failure_threshold <= instance.failures
            tasks["idle" if is_well else "unhealthy"] += free
            tasks["unavailable"] += max(limits.capacity - instance.slots_used - free, 0)
        elif instance.state is not InstanceState.CREATING:
            tasks["unavailable"] += free
    tasks["pending"] = len(roster.slots.waiters)
    tasks["reserved"] = open_requests + len(roster.slots.waiters)
    most = plan.terms.max_instances
    return Gauges(
        instances=dict(instances),
        tasks=dict(tasks),
        max_instances=most,
        max_tasks_per_instance=first.capacity,
        max_use_count_per_instance=first.max_use_count,
        desired_instances=plan.creation_count - len(plan.remove),
        at=at,
        open_requests=open_requests,
        may_grow=not most or plan.terms.instances + plan.creation_count < most,
        groups={name: _group(roster, name, plan, (starts or {}).get(name, 0)) for name in roster.groups},
    )


def _group(roster: Roster, name: str, plan: Plan, starts: int) -> GroupGauges:
    owner = roster.setup.owner
    ours = {
        key: member for key, member in roster.members.items() if member.group == name and not member.is_foreign(owner)
    }
    machines = Counter(dict.fromkeys(MACHINE_USES, 0))
    machines.update(_use(instance) for key in ours if (instance := roster.slots.instance(key)) is not None)
    hindered = Counter(dict.fromkeys(HINDRANCES, 0))
    for hindrance in plan.hindered:
        if hindrance.group == name and hindrance.because.reason in hindered:
            hindered[hindrance.because.reason] += hindrance.count
    return GroupGauges(
        machines=dict(machines),
        hindered={reason.value: count for reason, count in hindered.items()},
        stuck=sum(member.removing_at != member.removed_at for member in ours.values()),
        is_well=roster.groups[name].is_current,
        plugin_starts=starts,
    )


def _use(instance: Instance) -> str:
    if instance.is_busy:
        return "busy"
    return _USES.get(instance.state, "unavailable")


_USES = {
    InstanceState.CREATING: "creating",
    InstanceState.READY: "idle",
    InstanceState.DELETING: "removing",
}
