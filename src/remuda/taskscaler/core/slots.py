"""Assigns slots (room for one job on an instance) to jobs. In memory, no clock.

A *holder* is the id of a job that has a slot or waits for one. `acquire` puts it into a queue, and `grants` assigns
slots in the order of the queue. A job goes to an instance that has its caches, else to the fullest one, and of empty
ones to the one used last, so that others stay idle. Invariants: only ready and healthy instances get jobs, none more
than its capacity or uses; a job has at most one slot."""

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from remuda.taskscaler.core.values import Instance, InstanceState, Limits, free_slots


class Slot(msgspec.Struct, frozen=True):
    """Room for one job on an instance. The slots of an instance are numbered from 0."""

    instance: str
    number: int


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    holder: str
    slot: Slot


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    holder: str
    since: float
    caches: frozenset[str] = frozenset()


_Entry = tuple[int, float, str]
"""Heap entry of an instance with room: negated used slots, negated `idle_since`, its id."""


_SPARE = 64
"""The heap is rebuilt when it has more entries than twice the instances with room plus this number."""


class Slots:
    """The slots (room for one job each) of a fleet's instances, with their jobs and the queue of waiting jobs.
    `limits`: by group name. `warm_first`: prefer instances that have the caches of a job."""

    def __init__(self, limits: Mapping[str, Limits], *, warm_first: bool = True) -> None:
        self._limits = limits
        self._warm_first = warm_first
        self._instances: dict[str, Instance] = {}
        self._held: dict[str, Slot] = {}
        self._taken: dict[str, dict[int, str]] = {}
        self._waiting: OrderedDict[str, Waiter] = OrderedDict()
        # The heap is lazy: only the entry that `_open` has for an instance counts.
        self._open: dict[str, _Entry] = {}
        self._line: list[_Entry] = []
        self._warm: dict[str, set[str]] = {}

    @property
    def instances(self) -> tuple[Instance, ...]:
        """All instances with their used slots, as input of a plan."""
        return tuple(self._instances.values())

    @property
    def waiters(self) -> tuple[Waiter, ...]:
        """Jobs that wait for a slot, in the order in which they get one."""
        return tuple(self._waiting.values())

    @property
    def used_count(self) -> int:
        return len(self._held)

    def instance(self, instance_id: str) -> Instance | None:
        return self._instances.get(instance_id)

    def slot(self, holder: str) -> Slot | None:
        return self._held.get(holder)

    def holders(self, instance_id: str) -> dict[int, str]:
        """Ids of the jobs that have slots of an instance, by slot number."""
        return dict(self._taken.get(instance_id, {}))

    def change_limits(self, limits: Mapping[str, Limits]) -> None:
        """Set new limits by group name, also for existing instances. Jobs keep their slots, even above the limits."""
        self._limits = limits
        for instance in self._instances.values():
            self._put(instance)

    def update(self, instance: Instance) -> None:
        """Add an instance, or change its state. A known instance keeps its used slots, use count and caches."""
        previous = self._instances.get(instance.id)
        if previous is not None:
            became_ready = instance.state is InstanceState.READY is not previous.state
            idle_since = instance.since if became_ready and not previous.is_busy else previous.idle_since
            instance = replace(
                instance,
                slots_used=previous.slots_used,
                uses=max(previous.uses, instance.uses),
                idle_since=idle_since,
                warm=previous.warm | instance.warm,
            )
        else:
            instance = replace(instance, slots_used=0)
            self._taken[instance.id] = {}
        self._put(instance)

    def lose(self, instance_id: str) -> tuple[str, ...]:
        """Remove an instance that is gone; return the ids of the jobs that lost their slots."""
        lost = self._instances.pop(instance_id, None)
        if lost is None:
            return ()
        self._open.pop(instance_id, None)
        self._forget_warm(lost)
        holders = tuple(self._taken.pop(instance_id).values())
        for holder in holders:
            del self._held[holder]
        return holders

    def acquire(self, holder: str, *, now: float, caches: Iterable[str] = ()) -> None:
        """Queue a job for a slot, which `grants` assigns, unless it waits or has one. `caches`: keys of its caches."""
        if holder not in self._held:
            self._waiting.setdefault(holder, Waiter(holder=holder, since=now, caches=frozenset(caches)))

    def stop_waiting(self, holder: str) -> None:
        self._waiting.pop(holder, None)

    def put_back(self, waiter: Waiter) -> None:
        """Queue a job again whose instance was lost before the job started, at the position of its first wait."""
        self._waiting[waiter.holder] = waiter
        self._waiting = OrderedDict(sorted(self._waiting.items(), key=lambda item: item[1].since))

    def grants(self) -> tuple[Grant, ...]:
        """Assign free slots to waiting jobs and return the assignments. Call it after each change of slots or jobs."""
        grants = []
        for waiter in list(self._waiting.values()):
            instance_id = self._choose(waiter.caches)
            if instance_id is None:
                break
            taken = self._taken[instance_id]
            slot = Slot(instance_id, next(number for number in range(len(taken) + 1) if number not in taken))
            self._take(waiter.holder, slot, uses=1)
            grants.append(Grant(holder=waiter.holder, slot=slot))
        return tuple(grants)

    def release(self, holder: str, *, now: float, is_used: bool = True, warmed: Iterable[str] = ()) -> Slot | None:
        """End a job's use of its slot and return the slot; if it has none, stop its wait and return None. `is_used`:
        the job started, which counts as a use. `warmed`: keys of the caches that it left on the instance."""
        slot = self._held.pop(holder, None)
        if slot is None:
            self.stop_waiting(holder)
            return None
        del self._taken[slot.instance][slot.number]
        instance = self._instances[slot.instance]
        remaining = instance.slots_used - 1
        self._put(
            replace(
                instance,
                slots_used=remaining,
                uses=instance.uses - (not is_used),
                idle_since=instance.idle_since if remaining else now,
                warm=instance.warm.union(warmed),
            )
        )
        return slot

    def adopt(self, holder: str, slot: Slot) -> bool:
        """Give a job the slot again that it had in an earlier process, without counting a use. False if the instance is
        unknown, the slot is taken, or the job has another. The number may exceed the present capacity."""
        taken = self._taken.get(slot.instance)
        if taken is None or taken.get(slot.number, holder) != holder or self._held.get(holder, slot) != slot:
            return False
        if holder not in self._held:
            self._take(holder, slot, uses=0)
        return True

    def overdue(self, *, now: float, timeout_seconds: float, coming: int) -> tuple[Waiter, ...]:
        """Jobs that have waited for `timeout_seconds`, except the first `coming`, for which slots are starting."""
        line = list(self._waiting.values())[max(coming, 0) :]
        return tuple(waiter for waiter in line if now - waiter.since >= timeout_seconds)

    def _take(self, holder: str, slot: Slot, *, uses: int) -> None:
        self._waiting.pop(holder, None)
        self._held[holder] = slot
        self._taken[slot.instance][slot.number] = holder
        instance = self._instances[slot.instance]
        used = instance.slots_used + 1
        self._put(replace(instance, slots_used=used, uses=max(instance.uses + uses, used)))

    def _put(self, instance: Instance) -> None:
        previous = self._instances.get(instance.id)
        if previous is None or previous.warm != instance.warm:
            if previous is not None:
                self._forget_warm(previous)
            for key in instance.warm:
                self._warm.setdefault(key, set()).add(instance.id)
        self._instances[instance.id] = instance
        if self._has_room(instance):
            idle_since = instance.since if instance.idle_since is None else instance.idle_since
            entry = (-instance.slots_used, -idle_since, instance.id)
            if self._open.get(instance.id) != entry:
                self._open[instance.id] = entry
                heapq.heappush(self._line, entry)
                if len(self._line) > 2 * len(self._open) + _SPARE:
                    self._line = sorted(self._open.values())
        else:
            self._open.pop(instance.id, None)

    def _has_room(self, instance: Instance) -> bool:
        limits = self._limits[instance.group]
        is_well = not 0 < limits.failure_threshold <= instance.failures
        return instance.state is InstanceState.READY and is_well and free_slots(instance, limits) > 0

    def _choose(self, caches: frozenset[str]) -> str | None:
        if self._warm_first and caches:
            warm = {id_: self._instances[id_] for key in caches for id_ in self._warm.get(key, ()) if id_ in self._open}
            if warm:
                return min(warm, key=lambda id_: (-len(warm[id_].warm & caches), self._open[id_]))
        while self._line and self._open.get(self._line[0][2]) != self._line[0]:
            heapq.heappop(self._line)
        return self._line[0][2] if self._line else None

    def _forget_warm(self, instance: Instance) -> None:
        for key in instance.warm:
            ids = self._warm[key]
            ids.discard(instance.id)
            if not ids:
                del self._warm[key]
