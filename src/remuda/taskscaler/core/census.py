"""First step of a plan: counts instances, requests and slots of a fleet, and lists what must go whatever the demand is.
Instances without jobs that are used up, unhealthy, failed, stuck, drained or exist after their deletion are removed;
unhealthy ones with jobs are drained (get no more jobs). Lost instances and undelivered requests are forgotten (not
counted any more). Reads each instance once. Invariant: no busy instance is in `removals`."""

import sys

from remuda.taskscaler.core.decisions import Because, Drain, Forgetting, Number, Reason, Removal
from remuda.taskscaler.core.values import Fleet, Group, Instance, InstanceState, Request, free_slots, is_foreign_tag


class Tally:
    __slots__ = ("capacity", "coming", "group", "instances", "leaving", "rank", "requested", "starting", "threshold")

    def __init__(self, group: Group, rank: int) -> None:
        self.group = group
        self.rank = rank
        self.capacity = group.limits.capacity
        self.threshold = group.limits.failure_threshold if group.limits.failure_threshold > 0 else sys.maxsize
        self.instances = 0
        """Instances in any state but lost, those of other owners included; they count for the limits."""
        self.requested = 0
        """Instances that were requested and that the group has not shown yet."""
        self.leaving = 0
        """Instances that are being removed, or that will be when their jobs have ended."""
        self.starting = 0
        """Instances that are being created or were requested."""
        self.coming = 0
        """Slots of the starting instances."""

    @property
    def places(self) -> int:
        return self.instances + self.requested


class Census:
    """Counts of a fleet's instances, requests and slots, and the instances to remove, to drain (no more jobs) or to
    forget (lost or never delivered: not counted any more). Later steps of a plan change both."""

    def __init__(self, fleet: Fleet) -> None:
        self.tallies = {group.name: Tally(group, rank) for rank, group in enumerate(fleet.groups)}
        self.acquired = 0
        self.reusable = 0
        """Acquired slots that another job can use afterwards."""
        self.free = 0
        self.unknown = 0
        """Free slots of instances in the states unknown and suspect."""
        self.idle: list[tuple[Instance, int]] = []
        """Healthy ready instances without a job, with their number of free slots."""
        self.unsent: list[Request] = []
        self.removals: list[Removal] = []
        self.drains: list[Drain] = []
        self.forgotten: list[Forgetting] = []
        self.odd: dict[tuple[str, Reason], int] = {}
        """Number of instances that are left alone, by group and reason."""
        self.changes_at: list[float] = []
        """Times at which the counts change without an event, such as the end of a time limit."""

    @property
    def slots_coming(self) -> int:
        return sum(tally.coming for tally in self.tallies.values())

    @property
    def places(self) -> int:
        return sum(tally.places for tally in self.tallies.values())

    def remove(self, instance: Instance, reason: Reason, **numbers: Number) -> None:
        because = Because(reason=reason, numbers=numbers)
        self.removals.append(Removal(id=instance.id, group=instance.group, because=because))

    def drain(self, instance: Instance, reason: Reason, **numbers: Number) -> None:
        because = Because(reason=reason, numbers=numbers)
        self.drains.append(Drain(id=instance.id, group=instance.group, because=because))

    def forget(self, request: Request, reason: Reason, count: int, **numbers: Number) -> None:
        because = Because(reason=reason, numbers=numbers)
        self.forgotten.append(Forgetting(group=request.group, because=because, count=count, asked_at=request.asked_at))

    def leave_alone(self, group: str, reason: Reason) -> None:
        self.odd[group, reason] = self.odd.get((group, reason), 0) + 1


def take_census(fleet: Fleet, now: float) -> Census:
    census = Census(fleet)
    tallies, owner = census.tallies, fleet.owner
    ready = InstanceState.READY
    for instance in fleet.instances:
        tally = tallies.get(instance.group)
        if tally is None:
            census.leave_alone(instance.group, Reason.FOREIGN)
            continue
        is_foreign = is_foreign_tag(instance.owner, owner)
        if instance.state is InstanceState.LOST:
            because = Because(reason=Reason.LOST, numbers={"jobs": instance.slots_used})
            if is_foreign:
                because = Because(reason=Reason.GONE)
            census.forgotten.append(Forgetting(group=instance.group, because=because, id=instance.id))
            continue
        tally.instances += 1
        if is_foreign:
            census.leave_alone(instance.group, Reason.FOREIGN)
        elif instance.state is ready:
            _count_ready(census, tally, instance)
        else:
            _count_other(census, tally, instance, now)
    for request in fleet.requests:
        _count_request(census, request, now)
    return census


def _count_ready(census: Census, tally: Tally, instance: Instance) -> None:
    used = instance.slots_used
    census.acquired += used
    if instance.failures >= tally.threshold:
        tally.leaving += 1
        (census.drain if used else census.remove)(instance, Reason.UNHEALTHY, failures=instance.failures, jobs=used)
        return
    # Inlined `free_slots`: the call would take half of the time of a plan.
    free = tally.capacity - used if used < tally.capacity else 0
    most = tally.group.limits.max_use_count
    reusable = used
    if most:
        uses_left = most - instance.uses if instance.uses < most else 0
        if not uses_left and not used:
            tally.leaving += 1
            census.remove(instance, Reason.USED_UP, uses=instance.uses, max_use_count=most)
            return
        free = min(free, uses_left)
        reusable = min(used, uses_left - free)
    census.reusable += reusable
    census.free += free
    if not used:
        census.idle.append((instance, free))


def _count_other(census: Census, tally: Tally, instance: Instance, now: float) -> None:
    limits = tally.group.limits
    is_busy = instance.is_busy
    lasted = now - instance.since
    match instance.state:
        case InstanceState.CREATING if is_busy or lasted < limits.creation_seconds:
            tally.starting += 1
            tally.coming += free_slots(instance, limits)
            if not is_busy:
                census.changes_at.append(instance.since + limits.creation_seconds)
        case InstanceState.CREATING:
            tally.leaving += 1
            census.remove(instance, Reason.STUCK, seconds=lasted, creation_seconds=limits.creation_seconds)
        case InstanceState.DRAINING | InstanceState.FAILED:
            tally.leaving += 1
            if not is_busy:
                is_failed = instance.state is InstanceState.FAILED
                census.remove(instance, Reason.FAILED if is_failed else Reason.DRAINED, uses=instance.uses)
        case InstanceState.DELETING:
            tally.leaving += 1
            if lasted < limits.deletion_retry_seconds:
                census.changes_at.append(instance.since + limits.deletion_retry_seconds)
            elif not is_busy:
                census.remove(instance, Reason.RETRIED, seconds=lasted)
            return  # slots of its jobs do not count as acquired
        case _:
            census.unknown += free_slots(instance, limits)
            is_suspect = instance.state is InstanceState.SUSPECT
            census.leave_alone(instance.group, Reason.SUSPECT if is_suspect else Reason.UNKNOWN_STATE)
    census.acquired += instance.slots_used


def _count_request(census: Census, request: Request, now: float) -> None:
    tally = census.tallies.get(request.group)
    if tally is None:
        census.forget(request, Reason.WITHDRAWN, request.count)
        return
    limits = tally.group.limits
    lasted = now - request.asked_at
    if request.is_sent and lasted >= limits.delivery_seconds:
        census.forget(request, Reason.UNDELIVERED, request.count, seconds=lasted)
        return
    tally.requested += request.count
    tally.starting += request.count
    tally.coming += request.count * limits.fresh
    if request.is_sent:
        census.changes_at.append(request.asked_at + limits.delivery_seconds)
    else:
        census.unsent.append(request)
