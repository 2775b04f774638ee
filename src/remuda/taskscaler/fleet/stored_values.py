"""Values of a fleet's state file. Compatibility: new fields need defaults, and no field is removed."""

import msgspec

from remuda.taskscaler.core.boot import Boots
from remuda.taskscaler.core.values import Bucket, Cause, Instance, InstanceState
from remuda.taskscaler.fleet.groups import GroupState
from remuda.taskscaler.fleet.members import Member
from remuda.taskscaler.fleet.requests import PendingRequest


class StoredInstance(msgspec.Struct, frozen=True, kw_only=True):
    """State of an instance that must survive a restart and that its group does not report."""

    id: str
    group: str
    cause: Cause = Cause.PREEXISTED
    created_at: float = 0.0
    asked_at: float | None = None
    since: float = 0.0
    idle_since: float | None = None
    uses: int = 0
    warm: tuple[str, ...] = ()
    is_prepared: bool = False
    is_draining: bool = False
    removing_at: float | None = None
    removed_at: float | None = None
    reported: int = 0
    owner: str = ""
    holders: dict[int, str] = {}
    """Holders by slot number."""


class StoredGroup(msgspec.Struct, frozen=True, kw_only=True):
    """State of a group that must survive a restart: rate limit, boot times and failures."""

    name: str
    bucket: Bucket | None = None
    failures: int = 0
    failed_at: float = 0.0
    boots: Boots = Boots()


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    instances: tuple[StoredInstance, ...] = ()
    requests: tuple[PendingRequest, ...] = ()
    groups: tuple[StoredGroup, ...] = ()
    is_whole: bool = True
    """False: some rows could not be read."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the state file to write in one transaction; None deletes the row."""

    instances: dict[str, StoredInstance | None] = {}
    requests: dict[int, PendingRequest | None] = {}
    groups: dict[str, StoredGroup] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.instances or self.requests or self.groups)


_OF_MEMBERS = tuple(name for name in Member.__struct_fields__ if name in StoredInstance.__struct_fields__)


def to_stored_instance(member: Member, instance: Instance, holders: dict[int, str]) -> StoredInstance:
    return StoredInstance(
        **{name: getattr(member, name) for name in _OF_MEMBERS},
        since=instance.since,
        idle_since=instance.idle_since,
        uses=instance.uses,
        warm=tuple(sorted(instance.warm)),
        holders=holders,
    )


def to_member(stored: StoredInstance, now: float) -> Member:
    """Record of a stored instance until its group lists it. The time limit for its preparation starts at `now`."""
    return Member(begun_at=now, **{name: getattr(stored, name) for name in _OF_MEMBERS})


def to_instance(stored: StoredInstance, name: str, state: InstanceState) -> Instance:
    return Instance(
        id=name,
        group=stored.group,
        state=state,
        since=stored.since,
        uses=stored.uses,
        created_at=stored.created_at,
        idle_since=stored.idle_since,
        cause=stored.cause,
        warm=frozenset(stored.warm),
        failures=stored.reported,
        owner=stored.owner,
    )


def to_stored_group(group: GroupState) -> StoredGroup:
    return StoredGroup(
        name=group.name, bucket=group.bucket, failures=group.failures, failed_at=group.failed_at, boots=group.boots
    )
