"""Decides which instances of a fleet to create, remove and drain, and why. The only place that decides their number.

Wanted are slots for jobs that run, wait for a slot, wait at the server or will be ready soon, plus idle slots (policy).
Slots of starting instances count for creation but not for removal, so constant demand never causes both. Invariants:
equal input gives an equal plan; after a plan is carried out, the next one for the same time is empty."""

import heapq
import math

from remuda.taskscaler.core import shrink
from remuda.taskscaler.core.census import Census, take_census
from remuda.taskscaler.core.decisions import Because, Hindrance, Plan, Reason, Terms
from remuda.taskscaler.core.growth import Growth, grow
from remuda.taskscaler.core.policy import Policy
from remuda.taskscaler.core.throttle import backs_off_until
from remuda.taskscaler.core.values import Demand, Fleet

SHOWN_KEYS = 5
_NEARLY = 1e-9
"""Rounding error of a product of fractions."""


def plan(fleet: Fleet, demand: Demand, policy: Policy, now: float) -> Plan:
    census = take_census(fleet, now)
    order = shrink.removal_order(census)
    shrink.keep_limits(fleet, census, order)
    terms = _terms(fleet, census, demand, policy, now)
    shrink.withdraw_unneeded(census, terms)
    if policy.is_ending:
        shrink.remove_unawaited(fleet, census, terms)
    growth = grow(fleet, census, _missing(terms), now)
    unneeded = shrink.remove_idle(fleet, census, terms, policy, now, order)
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
        hindered=(*growth.hindered, *unneeded.hindered, *odd),
        buckets=growth.buckets,
        reservable=_reservable(census, growth, policy, unneeded.reserved_slots),
        look_again_at=min(changes_at, default=None),
        keys=_greatest(demand),
    )


def idle_target(policy: Policy, acquired: int) -> int:
    """Number of idle slots to keep: the larger of `idle_count` and `scale_factor` times `acquired` (slots in use), the
    latter rounded up and limited by `scale_factor_limit`."""
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
    # A job that follows others can use their slots, if those are of this fleet and reusable.
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
    """Number of missing slots by the reason to want them. Free and starting slots serve the most urgent first."""
    available = terms.free + terms.coming
    missing = {}
    for reason, slots in (
        (Reason.WAITING_JOBS, terms.waiting),
        (Reason.READY_JOBS, terms.ready),
        (Reason.SOON_JOBS, terms.soon),
        (Reason.IDLE_TARGET, terms.idle_target),
    ):
        missing[reason] = max(slots - available, 0)
        available = max(available - slots, 0)
    return missing


def _reservable(census: Census, growth: Growth, policy: Policy, reserved_slots: int) -> int | None:
    """How many slots requests for jobs may reserve (jobs the manager may request); None: any number. In preemptive mode
    (no request without a ready slot): the free slots minus `reserved_slots`, those of unneeded instances that only open
    requests keep. Otherwise: the free slots, plus those of instances that start or could be created."""
    if policy.preemptive:
        return max(census.free - reserved_slots, 0)
    if growth.potential is None:
        return None
    created = sum(creation.count * census.tallies[creation.group].group.limits.fresh for creation in growth.create)
    coming = sum(tally.coming for tally in census.tallies.values() if tally.group.is_current)
    return max(census.free, 0) + coming + created + growth.potential


def _boot_seconds(fleet: Fleet, now: float) -> float:
    """Estimated boot time of the group from which the next instance would be requested."""
    for group in fleet.groups:
        until = backs_off_until(group)
        if group.is_current and (until is None or until <= now):
            return group.boot_seconds
    return fleet.groups[0].boot_seconds if fleet.groups else 0.0


def _most(fleet: Fleet) -> int:
    """Limit on all instances: the lower of the fleet's limit and the sum of its groups' limits; 0: no limit."""
    each = [group.limits.max_instances for group in fleet.groups]
    together = sum(each) if all(each) else 0
    return min(filter(None, (together, fleet.max_instances)), default=0)


def _greatest(demand: Demand) -> tuple[tuple[str, int], ...]:
    counts = ((key.waiting + key.ready, key.key) for key in demand.keys if key.waiting or key.ready)
    return tuple((key, jobs) for jobs, key in heapq.nsmallest(SHOWN_KEYS, counts, key=lambda pair: (-pair[0], pair[1])))
