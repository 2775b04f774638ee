"""`plan`: what to create, what to remove, what to drain, and why. The only place that decides how many there should be.

Wanted are slots for the jobs that run, for those that wait here, those that wait at the server, those that will be
ready by the time that a new instance is, and idle ones as the policy says, on top. What of that neither is there nor
comes is created (`growth`); what is ready beyond it goes when it has been idle for long enough (`shrink`). Between the
two lies all that is on its way, so constant demand never makes both.

Whoever acts on a plan asks again afterwards, with what came of it, and at `look_again_at`. Invariants: the same values
give the same plan; once it has been carried out, the next one for the same moment is nothing.
"""

import heapq
import math

from remuda.taskscaler.core import shrink
from remuda.taskscaler.core.census import Census, take_census
from remuda.taskscaler.core.decisions import Because, Hindrance, Plan, Reason, Terms
from remuda.taskscaler.core.growth import Growth, grow
from remuda.taskscaler.core.policy import Policy
from remuda.taskscaler.core.throttle import backs_off_until
from remuda.taskscaler.core.values import Demand, Fleet, KeyDemand

SHOWN_KEYS = 5
_NEARLY = 1e-9
"""What a product of fractions may be above the whole number that is meant."""


def plan(fleet: Fleet, demand: Demand, policy: Policy, now: float) -> Plan:
    """What to do now about a fleet."""
    census = take_census(fleet, now)
    order = shrink.removal_order(census, [one.key for one in demand.keys if _jobs(one)])
    shrink.keep_limits(fleet, census, order)
    terms = _terms(fleet, census, demand, policy, now)
    shrink.withdraw_unneeded(census, terms)
    if policy.is_ending:
        shrink.remove_unawaited(fleet, census, terms)
    growth = grow(fleet, census, _missing(terms), now)
    kept = shrink.remove_idle(fleet, census, terms, policy, now, order)
    odd = (
        Hindrance(group=group, because=Because(reason=reason), count=count)
        for (group, reason), count in census.odd.items()
    )
    changes_at = [*census.changes_at, *growth.changes_at, *([] if policy.until is None else [policy.until])]
    return Plan(
        terms=terms,
        policy=policy.because,
        create=growth.create,
        remove=tuple(census.removals),
        drain=tuple(census.drains),
        forget=tuple(census.forgotten),
        hindered=(*growth.hindered, *kept.hindered, *odd),
        buckets=growth.buckets,
        reservable=_reservable(census, growth, policy, kept.reserved_slots),
        look_again_at=min(changes_at, default=None),
        keys=_greatest(demand),
    )


def idle_target(policy: Policy, acquired: int) -> int:
    """Idle slots that the policy wants: `idle_count`, or the part of those in use up to its limit if that is more."""
    scaled = math.ceil(policy.scale_factor * acquired - _NEARLY)
    if policy.scale_factor_limit:
        scaled = min(scaled, policy.scale_factor_limit)
    return max(policy.idle_count, scaled)


def _terms(fleet: Fleet, census: Census, demand: Demand, policy: Policy, now: float) -> Terms:
    horizon = _boot_seconds(fleet, now)
    waiting = ready = ending = 0
    soon = 0.0
    for key in demand.keys:
        waiting += key.waiting
        ready += key.ready
        ending += key.ending
        for some in key.soon:
            if some.ready_in_seconds <= horizon:
                soon += some.jobs * some.chance
    # A job that follows on others finds the slots of those, if they are of this fleet and may be used again.
    soon -= min(ending, census.reusable)
    return Terms(
        acquired=census.acquired,
        waiting=waiting,
        ready=ready,
        soon=max(math.floor(soon + 0.5), 0),
        idle_target=idle_target(policy, census.acquired),
        free=census.free,
        coming=census.slots_coming + census.unknown,
        reserved=fleet.reserved,
        instances=census.places,
        max_instances=_most(fleet),
    )


def _missing(terms: Terms) -> dict[Reason, int]:
    """What each kind of need lacks when the more urgent ones have taken what there is."""
    there = terms.free + terms.coming
    found = {}
    for reason, slots in (
        (Reason.WAITING_JOBS, terms.waiting),
        (Reason.READY_JOBS, terms.ready),
        (Reason.SOON_JOBS, terms.soon),
        (Reason.IDLE_TARGET, terms.idle_target),
    ):
        found[reason] = max(slots - there, 0)
        there = max(there - slots, 0)
    return found


def _reservable(census: Census, growth: Growth, policy: Policy, reserved_slots: int) -> int | None:
    """In preemptive mode what is ready and stays, otherwise also what comes and what could be created."""
    if policy.preemptive:
        return max(census.free - reserved_slots, 0)
    if growth.potential is None:
        return None
    created = sum(one.count * census.tallies[one.group].group.limits.fresh for one in growth.create)
    coming = sum(tally.coming for tally in census.tallies.values() if tally.group.is_current)
    return max(census.free, 0) + coming + created + growth.potential


def _boot_seconds(fleet: Fleet, now: float) -> float:
    """Of the group that an instance would come from."""
    for group in fleet.groups:
        until = backs_off_until(group)
        if group.is_current and (until is None or until <= now):
            return group.boot_seconds
    return fleet.groups[0].boot_seconds if fleet.groups else 0.0


def _most(fleet: Fleet) -> int:
    """Instances that all groups may have together; 0: no limit."""
    each = [group.limits.max_instances for group in fleet.groups]
    together = sum(each) if all(each) else 0
    return min(filter(None, (together, fleet.max_instances)), default=0)


def _jobs(key: KeyDemand) -> int:
    return key.waiting + key.ready + key.running + sum(some.jobs for some in key.soon)


def _greatest(demand: Demand) -> tuple[tuple[str, int], ...]:
    wanting = ((one.waiting + one.ready, one.key) for one in demand.keys if one.waiting or one.ready)
    return tuple((key, jobs) for jobs, key in heapq.nsmallest(SHOWN_KEYS, wanting, key=lambda one: (-one[0], one[1])))
