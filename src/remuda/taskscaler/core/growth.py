"""Part of a plan: how many instances to request from which group when slots are missing, and what prevents more.

The most urgent need is met first. Groups are used in their configured order (the fallback chain). Instances that a
group cannot give (maximum, quota, failures) are requested from the next group; those that only its rate limits delay
are requested from the same group later. After too many failures a group gets requests for one instance at a time until
one succeeds. Invariants: no limit is exceeded; more missing slots never lead to fewer instances."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from remuda.taskscaler.core import throttle
from remuda.taskscaler.core.census import Census, Tally
from remuda.taskscaler.core.decisions import Because, Creation, Hindrance, Number, Reason
from remuda.taskscaler.core.values import Bucket, Fleet


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """How many more instances the limits of a group allow; None: any number. `because` names the tightest limit."""

    instances: int | None = None
    because: Because | None = None
    changes_at: float | None = None

    def narrow(self, instances: int, reason: Reason, changes_at: float | None = None, **numbers: Number) -> "Room":
        """Apply a further limit, named by `reason`, that allows only `instances` more. Returns `self` if the present
        limit is as tight. `changes_at`: when the limit ends; `numbers`: values for the text of `reason`."""
        instances = max(instances, 0)
        if self.instances is not None and self.instances <= instances:
            return self
        return Room(instances=instances, because=Because(reason=reason, numbers=numbers), changes_at=changes_at)

    def fit(self, wanted: int) -> int:
        return wanted if self.instances is None else min(wanted, self.instances)


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    create: tuple[Creation, ...]
    hindered: tuple[Hindrance, ...]
    buckets: dict[str, Bucket]
    potential: int | None
    """Slots that could be created beyond `create`, now or soon; None: any number."""
    changes_at: tuple[float, ...]


def grow(fleet: Fleet, census: Census, missing: Mapping[Reason, int], now: float) -> Growth:
    """Decide how many instances to request from each group. `missing`: number of missing slots by the reason why they
    are wanted, the most urgent reason first."""
    parts = dict(missing)
    need = sum(parts.values())
    create: list[Creation] = []
    hindered: list[Hindrance] = []
    buckets: dict[str, Bucket] = {}
    changes_at: list[float] = []
    spare: list[tuple[int | None, int]] = []
    places = census.places
    for tally in census.tallies.values():
        group = tally.group
        fresh = group.limits.fresh
        wanted = -(-need // fresh)
        hard = _room(fleet, tally, places, now)
        possible = hard.fit(wanted)
        bucket = throttle.refill(group, now)
        soft = _pace(tally, bucket)
        count = soft.fit(possible)
        for room, lacking in ((hard, wanted - possible), (soft, possible - count)):
            if lacking and room.because is not None:
                hindered.append(Hindrance(group=group.name, because=room.because, count=lacking))
                changes_at += [room.changes_at] if room.changes_at is not None else []
        if bucket is not None:
            buckets[group.name] = bucket = Bucket(tokens=bucket.tokens - count, at=bucket.at)
            if count < possible and soft.because is not None and soft.because.reason is Reason.THROTTLED:
                changes_at.append(throttle.next_token_at(bucket, group.limits))
        if count:
            create.append(Creation(group=group.name, count=count, because=_spend(parts, count * fresh)))
        places += count
        # What only waits for its turn in this group is not requested from the next one.
        need = max(need - possible * fresh, 0)
        spare.append((None if hard.instances is None else hard.instances - count, fresh))
    overall = max(fleet.max_instances - places, 0) if fleet.max_instances else None
    return Growth(
        create=tuple(create),
        hindered=tuple(hindered),
        buckets=buckets,
        potential=_potential(spare, overall),
        changes_at=tuple(changes_at),
    )


def _room(fleet: Fleet, tally: Tally, places: int, now: float) -> Room:
    """How many more instances a group may have by all its limits except the rate limits. `tally`: the group and its
    counts. `places`: number of instances of all groups, requested and planned ones included."""
    group, limits = tally.group, tally.group.limits
    room = Room()
    if not group.is_current:
        room = room.narrow(0, Reason.NOT_CURRENT)
    until = throttle.backs_off_until(group)
    if until is not None and now < until:
        seconds = math.ceil(until - now)
        room = room.narrow(0, Reason.BACKING_OFF, until, failures=group.failures, seconds=seconds)
    if limits.quota is not None:
        room = room.narrow(limits.quota - tally.places, Reason.QUOTA, quota=limits.quota)
    if limits.max_instances:
        room = room.narrow(
            limits.max_instances - tally.places, Reason.MAX_INSTANCES, max_instances=limits.max_instances
        )
    if fleet.max_instances:
        room = room.narrow(fleet.max_instances - places, Reason.MAX_INSTANCES, max_instances=fleet.max_instances)
    if 0 < limits.failure_threshold <= group.failures:
        room = room.narrow(1 - tally.starting, Reason.PROBING, failures=group.failures)
    return room


def _pace(tally: Tally, bucket: Bucket | None) -> Room:
    """How many instances may be requested from a group now, by its rate limits: token bucket and `max_creating`."""
    limits = tally.group.limits
    room = Room()
    if limits.max_creating:
        room = room.narrow(
            limits.max_creating - tally.starting,
            Reason.MAX_CREATING,
            max_creating=limits.max_creating,
            starting=tally.starting,
        )
    if bucket is not None:
        room = room.narrow(throttle.whole_tokens(bucket), Reason.THROTTLED, rate=throttle.rate(limits))
    return room


def _spend(parts: dict[Reason, int], slots: int) -> tuple[Because, ...]:
    """Divide `slots` new slots among the reasons in `parts` (missing slots by reason), in order, and subtract them
    from `parts`. Returns each reason that got slots, with their number."""
    purposes = []
    for reason, lacking in parts.items():
        if taken := min(lacking, slots):
            purposes.append(Because(reason=reason, numbers={"slots": taken}))
            parts[reason] -= taken
            slots -= taken
    return tuple(purposes)


def _potential(spare: Sequence[tuple[int | None, int]], overall: int | None) -> int | None:
    total = 0
    for instances, fresh in spare:
        if overall is not None:
            instances = overall if instances is None else min(instances, overall)
            overall -= instances
        if instances is None:
            return None
        total += instances * fresh
    return total
