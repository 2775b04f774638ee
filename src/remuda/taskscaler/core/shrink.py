"""Part of a plan: which instances to remove because they are not needed, or because a limit is exceeded.

Above a limit, idle instances are removed at once, then starting ones, and busy ones are drained. Below it, requests
that were not sent are withdrawn first, then long idle instances are removed, if the *ready* slots of the other ones are
enough. In preemptive mode an instance whose slots are reserved by requests for jobs stays for a limited time.
Invariants: no busy instance is removed; removing an idle instance below the limits makes no slot missing."""

from collections.abc import Callable

import msgspec

from remuda.taskscaler.core.census import Census, Tally
from remuda.taskscaler.core.decisions import Because, Hindrance, Number, Reason, Terms
from remuda.taskscaler.core.policy import Policy
from remuda.taskscaler.core.values import Fleet, Instance, InstanceState, free_slots, is_foreign_tag

RESERVED_SECONDS = 120.0
"""How long open requests for jobs can keep an instance: a server holds a request for a minute or less."""

Order = Callable[[Instance], tuple[object, ...]]


class Unneeded(msgspec.Struct, frozen=True, kw_only=True):
    hindered: tuple[Hindrance, ...] = ()
    reserved_slots: int = 0
    """Slots of instances that are removed as soon as no request for a job reserves them."""


def keep_limits(fleet: Fleet, census: Census, order: Order) -> None:
    """Keep groups and fleet within `max_instances`: withdraw unsent requests, then remove instances, or drain busy ones
    (no more jobs): those with the fewest used slots first, ready before starting, then by the sort key `order`."""
    for tally in census.tallies.values():
        if tally.group.limits.max_instances:
            _keep(fleet, census, [tally], tally.group.limits.max_instances, order)
    if fleet.max_instances:
        _keep(fleet, census, list(census.tallies.values()), fleet.max_instances, order)


def withdraw_unneeded(census: Census, terms: Terms) -> None:
    """Withdraw unsent requests for instances, as long as existing and starting slots cover the wanted ones."""
    spare = terms.acquired + terms.free + census.slots_coming - terms.slots_wanted
    # A request to another group may bring more slots than were missing. That alone must not make a request
    # superfluous, or each plan would undo the one before.
    largest = max((tally.group.limits.fresh for tally in census.tallies.values()), default=1)
    for tally in reversed(census.tallies.values()):
        fresh = tally.group.limits.fresh
        beyond = spare - (largest - fresh) if terms.slots_wanted > terms.acquired else spare
        spare -= _withdraw(census, tally, max(beyond, 0) // fresh) * fresh


def remove_unawaited(fleet: Fleet, census: Census, terms: Terms) -> None:
    """If no more jobs are requested: remove starting instances, youngest first, while other slots cover the wanted."""
    spare = terms.acquired + terms.free + census.slots_coming - terms.slots_wanted
    going = {removal.id for removal in census.removals}
    for instance in sorted(fleet.instances, key=lambda candidate: (-candidate.since, candidate.id)):
        tally = census.tallies.get(instance.group)
        is_coming = instance.state is InstanceState.CREATING and not instance.is_busy and instance.id not in going
        if tally is None or not is_coming or is_foreign_tag(instance.owner, fleet.owner):
            continue
        slots = free_slots(instance, tally.group.limits)
        if slots <= spare:
            spare -= slots
            tally.leaving += 1
            tally.starting -= 1
            tally.coming -= slots
            census.remove(instance, Reason.UNAWAITED)


def remove_idle(fleet: Fleet, census: Census, terms: Terms, policy: Policy, now: float, order: Order) -> Unneeded:
    """Plan to remove unneeded instances that have been idle for the policy's time, sorted by the key `order`. Returns
    how many unneeded instances stay, and why."""
    surplus, free = terms.surplus, terms.free
    if surplus <= 0:
        return Unneeded()
    longest = now - policy.idle_seconds
    due: list[tuple[Instance, int]] = []
    young: list[tuple[Instance, int]] = []
    for pair in census.idle:
        (due if _idle_since(pair[0]) <= longest else young).append(pair)
    due.sort(key=lambda pair: order(pair[0]))
    reserved_slots, staying = 0, dict[tuple[str, Reason], int]()
    for instance, slots in due:
        if slots > surplus:
            continue
        surplus -= slots
        until = _idle_since(instance) + policy.idle_seconds + RESERVED_SECONDS
        if policy.preemptive and free - slots < fleet.reserved and now < until:
            reserved_slots += slots
            census.changes_at.append(until)
            staying[instance.group, Reason.RESERVED] = staying.get((instance.group, Reason.RESERVED), 0) + 1
            continue
        free -= slots
        census.free -= slots
        census.tallies[instance.group].leaving += 1
        seconds = now - _idle_since(instance)
        census.remove(instance, Reason.IDLE, seconds=seconds, idle_seconds=policy.idle_seconds, slots=slots)
    for instance, slots in young:
        if slots <= surplus:
            surplus -= slots
            census.changes_at.append(_idle_since(instance) + policy.idle_seconds)
            staying[instance.group, Reason.NOT_IDLE_LONG] = staying.get((instance.group, Reason.NOT_IDLE_LONG), 0) + 1
    numbers: dict[Reason, dict[str, Number]] = {
        Reason.RESERVED: {"reserved": fleet.reserved},
        Reason.NOT_IDLE_LONG: {"idle_seconds": policy.idle_seconds},
    }
    return Unneeded(
        hindered=tuple(
            Hindrance(group=group, because=Because(reason=reason, numbers=numbers[reason]), count=count)
            for (group, reason), count in staying.items()
        ),
        reserved_slots=reserved_slots,
    )


def removal_order(census: Census) -> Order:
    """Make the sort key of instances for removal: those without caches first, then those of the last group in the
    fallback chain, then those that have been idle longest."""
    ranks = {name: -tally.rank for name, tally in census.tallies.items()}

    def order(instance: Instance) -> tuple[object, ...]:
        return (
            bool(instance.warm),
            ranks[instance.group],
            _idle_since(instance),
            instance.created_at,
            -instance.uses,
            instance.id,
        )

    return order


def _idle_since(instance: Instance) -> float:
    return instance.since if instance.idle_since is None else instance.idle_since


def _keep(fleet: Fleet, census: Census, tallies: list[Tally], most: int, order: Order) -> None:
    remaining = sum(tally.instances - tally.leaving for tally in tallies)
    unsent = remaining + sum(tally.requested for tally in tallies) - most
    for tally in reversed(tallies):
        unsent -= _withdraw(census, tally, max(unsent, 0))
    over = remaining - most
    if over <= 0:
        return
    names = {tally.group.name for tally in tallies}
    going = {removal.id for removal in census.removals} | {drain.id for drain in census.drains}
    removable = [
        instance
        for instance in fleet.instances
        if instance.group in names
        and instance.id not in going
        and instance.state in (InstanceState.READY, InstanceState.CREATING)
        and not is_foreign_tag(instance.owner, fleet.owner)
    ]
    removable.sort(
        key=lambda instance: (instance.slots_used, instance.state is InstanceState.CREATING, *order(instance))
    )
    gone = set()
    for instance in removable[:over]:
        tally = census.tallies[instance.group]
        tally.leaving += 1
        gone.add(instance.id)
        slots = free_slots(instance, tally.group.limits)
        if instance.state is InstanceState.CREATING:
            tally.starting -= 1
            tally.coming -= slots
        else:
            census.free -= slots
        (census.drain if instance.is_busy else census.remove)(
            instance, Reason.OVER_LIMIT, max_instances=most, instances=remaining
        )
    census.idle = [pair for pair in census.idle if pair[0].id not in gone]


def _withdraw(census: Census, tally: Tally, count: int) -> int:
    """Withdraw up to `count` instances from a group's requests that were not sent, latest first. Returns how many."""
    withdrawn = 0
    for request in sorted(census.unsent, key=lambda unsent: unsent.asked_at, reverse=True):
        part = min(request.count, count - withdrawn)
        if request.group != tally.group.name or part <= 0:
            continue
        census.unsent.remove(request)
        if part < request.count:
            census.unsent.append(msgspec.structs.replace(request, count=request.count - part))
        census.forget(request, Reason.WITHDRAWN, part)
        withdrawn += part
    tally.requested -= withdrawn
    tally.starting -= withdrawn
    tally.coming -= withdrawn * tally.group.limits.fresh
    return withdrawn
