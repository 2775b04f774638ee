"""State of a fleet in memory: instances, slots and their holders (ids of jobs), groups, pending requests. Pure.

The tasks of `loop`, which wait, write and call plugins, report every event here with its time; `take_changes` returns
what they must store. Invariants: every member has an instance of the same name in `slots`; if an instance is gone, the
caller gets the ids of the jobs that had its slots."""

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from remuda.taskscaler.core.rebalancing import Seen, Sighting
from remuda.taskscaler.core.slots import Slot, Slots
from remuda.taskscaler.core.values import Cause, Instance, InstanceState, Limits
from remuda.taskscaler.fleet.groups import GroupState
from remuda.taskscaler.fleet.members import Member, state_of, strike_seconds
from remuda.taskscaler.fleet.requests import PendingRequests
from remuda.taskscaler.fleet.setup import FleetSetup, ScalerMetrics, instance_name
from remuda.taskscaler.fleet.stored_values import (
    Changes,
    Stored,
    StoredInstance,
    to_instance,
    to_member,
    to_stored_group,
    to_stored_instance,
)

_PASSING = frozenset(
    {InstanceState.CREATING, InstanceState.DELETING, InstanceState.SUSPECT, InstanceState.FAILED, InstanceState.LOST}
)
"""States that are expected to change soon."""


class Gone(msgspec.Struct, frozen=True):
    """An instance that does not exist any more, the holders (ids of jobs) of its slots, and the probable cause."""

    name: str
    holders: tuple[str, ...]
    why: str = ""
    """Probable cause if the instance disappeared without a request of this scaler; empty if unknown."""


class Roster:
    def __init__(self, setup: FleetSetup, metrics: ScalerMetrics) -> None:
        self.setup = setup
        self.groups = {group.name: GroupState(name=group.name, limits=group.limits) for group in setup.groups}
        self.members: dict[str, Member] = {}
        self.requests = PendingRequests()
        self._limits: dict[str, Limits] = self._effective()
        self.slots = Slots(self._limits)
        self.metrics = metrics
        self._unsure: set[str] = set()
        """Holders of an earlier process that are not confirmed yet."""
        self.deleted: dict[str, float] = {}
        """Instances that were deleted recently, with the time."""
        self._changed: set[str] = set()
        self._changed_groups: set[str] = set()

    def load(self, stored: Stored, now: float) -> tuple[str, ...]:
        """Restore a stored state. Returns the instances left out because their group is not configured any more."""
        for group in stored.groups:
            if state_of_group := self.groups.get(group.name):
                state_of_group.bucket, state_of_group.boots = group.bucket, group.boots
                state_of_group.failures, state_of_group.failed_at = group.failures, group.failed_at
        for request in stored.requests:
            self.requests.load(request, is_known=request.group in self.groups)
        strangers = []
        for instance in stored.instances:
            name = instance_name(instance.group, instance.id)
            if instance.group not in self.groups:
                strangers.append(name)
                continue
            member = self.members[name] = to_member(instance, now)
            state = state_of(member, threshold=self._limits[instance.group].failure_threshold)
            self.slots.update(to_instance(instance, name, state))
            for number, holder in instance.holders.items():
                if self.slots.adopt(holder, Slot(name, number)):
                    self._unsure.add(holder)
        return tuple(strangers)

    def change(self, setup: FleetSetup) -> None:
        """Apply a changed configuration of limits and intervals. Groups are neither added nor removed."""
        self.setup = setup
        for group_setup in setup.groups:
            if group := self.groups.get(group_setup.name):
                group.limits = group_setup.limits
        self.apply_limits()

    def apply_limits(self) -> None:
        """Pass the limits of the groups, with the lowest known quota of each, to `slots` if they have changed."""
        limits = self._effective()
        if limits != self._limits:
            self._limits = limits
            self.slots.change_limits(limits)

    def adopt(self, holder: str, name: str, now: float) -> bool:
        """Give a job that an earlier process started a slot on its instance `name`. False if the name fits no group."""
        slot = self.slots.slot(holder)
        self._unsure.discard(holder)
        if slot is not None:
            if slot.instance == name:
                return True
            self.release(holder, now)
        if name not in self.members and not self._presume(name, now):
            return False
        taken = self.slots.holders(name)
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        self._changed.add(name)
        return self.slots.adopt(holder, Slot(name, number))

    def confirm(self, holder: str) -> Slot | None:
        """Return a job's slot, or None. From now on, `end_recovery` does not release it: the job is known to exist."""
        self._unsure.discard(holder)
        return self.slots.slot(holder)

    def end_recovery(self, now: float) -> tuple[str, ...]:
        """Release restored slots whose jobs neither `confirm` nor `adopt` has named; return the ids of these jobs."""
        unknown = tuple(sorted(self._unsure))
        for holder in unknown:
            self.release(holder, now)
        self._unsure.clear()
        return unknown

    def hand_out(self) -> tuple[tuple[str, Slot], ...]:
        grants = self.slots.grants()
        self._changed.update(grant.slot.instance for grant in grants)
        return tuple((grant.holder, grant.slot) for grant in grants)

    def release(self, holder: str, now: float, *, is_used: bool = True, warmed: Collection[str] = ()) -> bool:
        """Release a job's slot; False if the job had none. `is_used`: the job started. `warmed`: keys of the caches
        that the job has filled on the instance."""
        slot = self.slots.release(holder, now=now, is_used=is_used, warmed=warmed)
        if slot is not None:
            self._changed.add(slot.instance)
        return slot is not None

    def mark_unreachable(self, group: str, error: str) -> None:
        """Record that the plugin could not list a group's instances. Plans create none until an update succeeds."""
        self.groups[group].is_current = False
        self.groups[group].error = error

    def note_failed_creation(
        self, group: str, error: str, now: float, *, cause: str, count: int = 1, asked_at: float | None = None
    ) -> None:
        """Record that `count` requested instances failed to start. This counts as one failure of the group, after which
        it gets no requests for a while. `cause`: one of `setup.FAILURES`. `asked_at`: time of the request."""
        self.groups[group].note_failure(now, error)
        self._changed_groups.add(group)
        self.metrics.count_failed_creation(group, cause, None if asked_at is None else now - asked_at, count)

    def mark_group_changed(self, group: str) -> None:
        """Add the group's token bucket and statistics to what `take_changes` returns for the state file."""
        self._changed_groups.add(group)

    def mark_prepared(self, name: str, now: float) -> None:
        member = self.members[name]
        member.is_prepared, member.error = True, ""
        member.check_at = now + self.setup.heartbeat_seconds
        seconds = None if member.asked_at is None else now - member.asked_at
        self.groups[member.group].note_success(seconds)
        if seconds is not None:
            self.metrics.observe_boot(member.group, seconds)
        self._changed_groups.add(member.group)
        self.refresh(name, now)

    def mark_unpreparable(self, name: str, error: str, now: float) -> None:
        """Record that an instance could not be prepared for jobs and never will be. The next plan removes it."""
        member = self.members[name]
        member.is_failed, member.error = True, error
        text = f"{name} could not be prepared: {error}"
        self.note_failed_creation(member.group, text, now, cause="unprepared", asked_at=member.asked_at)
        self.refresh(name, now)

    def note_check(self, name: str, error: str | None, now: float) -> None:
        """Record the result of a health check of an instance. `error` is None if it is healthy."""
        if member := self.members.get(name):
            member.unanswered = 0 if error is None else member.unanswered + 1
            member.error = error or ("" if member.is_prepared else member.error)
            pause = self._strike_seconds(member) if member.unanswered else self.setup.heartbeat_seconds
            member.check_at = now + pause
            self.refresh(name, now)

    def note_report(self, name: str, now: float, *, is_well: bool) -> None:
        """Record whether a job found its instance healthy. After `failure_threshold` bad reports in a row, plans remove
        or drain it. A bad report also causes a health check at once, unless the last one failed. Bad reports within
        `strike_seconds` of the last counted one are ignored: several jobs may have the same problem."""
        if member := self.members.get(name):
            if is_well:
                member.reported, member.reported_at = 0, float("-inf")
            elif now - member.reported_at >= self._strike_seconds(member):
                member.reported, member.reported_at = member.reported + 1, now
                member.check_at = member.check_at if member.unanswered else now
            self.refresh(name, now)

    def remove(self, name: str, now: float) -> None:
        """Mark an instance for deletion: it gets no more jobs. The caller must also ask the plugin to delete it."""
        member = self.members[name]
        member.removing_at = now
        member.removed_at = now if member.removed_at is None else member.removed_at
        self.refresh(name, now)

    def drain(self, name: str, now: float) -> None:
        self.members[name].is_draining = True
        self.refresh(name, now)

    def lose(self, name: str, now: float) -> Gone:
        """Delete the record and slots of a vanished instance. Returns its name, its jobs' ids, the probable cause."""
        member = self.members.pop(name)
        if member.removed_at is not None:
            self.metrics.observe("instance_deletion", now - member.removed_at)
            self.deleted[name] = now
        self.metrics.observe("instance_life_duration", now - member.created_at)
        self._changed.add(name)
        is_loss = member.removed_at is None and not member.is_foreign(self.setup.owner)
        return Gone(name, self.slots.lose(name), self._note_loss(name, member, now) if is_loss else "")

    def _note_loss(self, name: str, member: Member, now: float) -> str:
        """Record that an instance disappeared without a request. Returns the probable cause, or "" if unknown."""
        group = self.groups[member.group]
        if member.shown is None:  # it vanished before this process looked: the time is unknown
            return ""
        sighting = Sighting(
            what=Seen.LOST, at=now, instance=name, came_at=member.created_at, was_ready=member.is_prepared
        )
        group.note_sightings(now, sighting)
        if member.is_prepared:
            self.metrics.count_loss(member.group, group.verdict.kind)
        return group.verdict.cause

    def refresh(self, name: str, now: float) -> None:
        """Compute an instance's state from its record again; if it has changed, update the instance in `self.slots`."""
        member, instance = self.members[name], self.slots.instance(name)
        assert instance is not None
        state = state_of(member, threshold=self._limits[member.group].failure_threshold)
        since = instance.since
        if state is InstanceState.DELETING and member.removing_at is not None:
            since = member.removing_at
        elif state is not instance.state:
            since = now
            if state is InstanceState.CREATING:
                since = member.begun_at
            elif state is InstanceState.READY and instance.state is not InstanceState.CREATING:
                # It was only suspect for a moment, so its idle time goes on.
                since = instance.since if instance.idle_since is None else instance.idle_since
        fresh = replace(instance, state=state, since=since, failures=member.failures, owner=member.owner)
        if fresh != instance:
            self.slots.update(fresh)
            self._changed.add(name)

    def is_expecting(self, group: str) -> bool:
        """True if a change is expected soon, so the group should be updated more often: instances are requested,
        starting, failed, suspect, lost or being deleted."""
        if any(self.requests.of(group)):
            return True
        for name, member in self.members.items():
            instance = self.slots.instance(name)
            if member.group != group or instance is None:
                continue
            # Of another owner's instance only its end matters: it takes up a place.
            is_ours = not member.is_foreign(self.setup.owner)
            if member.missed or (is_ours and instance.state in _PASSING):
                return True
        return False

    def take_changes(self) -> Changes:
        """The changes since the last call, to be written to the state file. If that fails, call `restore_changes`."""
        changes = Changes(
            instances={name: self._to_stored(name) for name in self._changed},
            requests={
                number: replace(request) if (request := self.requests.all.get(number)) else None
                for number in self.requests.changed
            },
            groups={name: to_stored_group(self.groups[name]) for name in self._changed_groups},
        )
        self._changed.clear()
        self._changed_groups.clear()
        self.requests.changed.clear()
        return changes

    def restore_changes(self, changes: Changes) -> None:
        """Mark changes from `take_changes` as unwritten again, because writing them failed."""
        self._changed.update(changes.instances)
        self._changed_groups.update(changes.groups)
        self.requests.changed.update(changes.requests)

    def _strike_seconds(self, member: Member) -> float:
        return strike_seconds(self.setup, threshold=self._limits[member.group].failure_threshold)

    def _effective(self) -> dict[str, Limits]:
        return {name: group.effective for name, group in self.groups.items()}

    def _presume(self, name: str, now: float) -> bool:
        """Add an instance missing in the state file that a job runs on. False if by its name it is in no group."""
        for group in sorted(self.groups, key=len, reverse=True):
            if not group or name.startswith(f"{group}/"):
                instance_id = name[len(group) + 1 :] if group else name
                self.add(Member(id=instance_id, group=group, cause=Cause.PREEXISTED, created_at=now, begun_at=now), now)
                self.members[name].is_prepared = True
                return True
        return False

    def add(self, member: Member, now: float) -> None:
        """Add a new instance: DELETING if it is to be deleted, otherwise UNKNOWN until the next `refresh`."""
        name = instance_name(member.group, member.id)
        self.members[name] = member
        state = InstanceState.DELETING if member.is_removing else InstanceState.UNKNOWN
        self.slots.update(
            Instance(
                id=name,
                group=member.group,
                state=state,
                since=now if member.removing_at is None else member.removing_at,
                created_at=member.created_at,
                cause=member.cause,
                owner=member.owner,
            )
        )
        self._changed.add(name)

    def _to_stored(self, name: str) -> StoredInstance | None:
        member, instance = self.members.get(name), self.slots.instance(name)
        if member is None or instance is None:
            return None
        return to_stored_instance(member, instance, self.slots.holders(name))
