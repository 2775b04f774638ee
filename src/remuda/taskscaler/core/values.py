"""What a plan is made from: instances, the groups they are of, and what jobs ask for.

Nothing is decided here but what follows from one value alone, such as how many more jobs an instance can take. Times
are seconds since the epoch. A fleet is what one entry of the configuration scales: one group, or several of which a
later one is used for what an earlier one cannot give (a *fallback chain*).

Invariant: an instance is busy exactly when slots of it are in use, whatever its state; nothing removes a busy one.
"""

from enum import StrEnum

import msgspec

DEFAULT_BOOT_SECONDS = 120.0
"""Taken for the time from the request to a ready instance while none has been seen."""


class InstanceState(StrEnum):
    """How far an instance is. Busy is no state: a ready, draining or even creating one may have jobs."""

    CREATING = "creating"  # its group has it, but it does not run yet, or is not prepared
    READY = "ready"  # takes jobs
    DRAINING = "draining"  # keeps the jobs that it has, takes no more, and goes after them
    FAILED = "failed"  # could not be prepared: no connection, or its ready command failed
    DELETING = "deleting"  # its group has accepted that it goes
    LOST = "lost"  # its group has it no more, and we did not ask for that
    UNKNOWN = "unknown"  # its group calls its state something that we do not know, or has not been asked yet
    SUSPECT = "suspect"  # its group did not show it last time, or it did not answer: no job until that is clear


class Cause(StrEnum):
    """Why there is an instance."""

    REQUESTED = "requested"  # we asked for it
    PREEXISTED = "preexisted"  # it was there when we came
    UNEXPECTED = "unexpected"  # it came, and nobody here had asked


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One machine of a group."""

    id: str
    group: str = ""
    state: InstanceState = InstanceState.READY
    since: float = 0.0
    """In this state since then; of a deleting one: when its group was last asked."""
    slots_used: int = 0
    uses: int = 0
    """Jobs that it has had, those that it has now included."""
    created_at: float = 0.0
    idle_since: float | None = None
    """Without any job since then; None: as long as it is in its state."""
    cause: Cause = Cause.REQUESTED
    warm: frozenset[str] = frozenset()
    """The keys whose caches it has."""
    failures: int = 0
    """Health checks that failed in a row."""
    owner: str = ""
    """Whose it is by its tag; empty when there is none, which is as good as ours."""

    @property
    def is_busy(self) -> bool:
        return self.slots_used > 0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a group; 0 is no limit unless it says otherwise."""

    max_instances: int = 0
    """Instances in any state, requests for such included."""
    capacity_per_instance: int = 1
    """Jobs at the same time on one instance; 0 is 1."""
    max_use_count: int = 0
    """Jobs that an instance gets in its life."""
    max_creating: int = 0
    """Instances that may be on their way at the same time (Docker Machine's `MaxGrowthRate`)."""
    throttle_limit: float = 0.0
    """Instances a second that may be asked for; 0 is 100, below 0 any number."""
    throttle_burst: int = 0
    """How many at once when none was asked for lately; 0 is `max_instances`, or else `throttle_limit`."""
    failure_threshold: int = 3
    """Failed health checks in a row that make an instance unhealthy; failed creations that make a group doubtful."""
    quota: int | None = None
    """Instances that the provider lets us have at present, if it said so."""
    creation_seconds: float = 900.0
    """So long an instance may take until it is ready."""
    delivery_seconds: float = 600.0
    """So long an instance that was asked for may take until its group shows it."""
    deletion_retry_seconds: float = 60.0

    @property
    def capacity(self) -> int:
        return max(self.capacity_per_instance, 1)

    @property
    def fresh(self) -> int:
        """Jobs at the same time that a new instance can take."""
        return min(self.capacity, self.max_use_count) if self.max_use_count else self.capacity


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """How many instances may be asked for: what was left then. It fills with time, see `throttle`."""

    tokens: float
    at: float


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Where instances come from, and how that goes at present."""

    name: str = ""
    limits: Limits = Limits()
    bucket: Bucket | None = None
    """None: full."""
    failures: int = 0
    """Creations that failed in a row: refused, never ready, not prepared."""
    failed_at: float = 0.0
    """The last one."""
    is_current: bool = True
    """Its plugin answered when last asked for the instances; if not, nothing is bought."""
    boot_seconds: float = DEFAULT_BOOT_SECONDS


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Instances that a group was asked for, and that it has not shown yet."""

    group: str = ""
    count: int = 1
    asked_at: float = 0.0
    is_sent: bool = True
    """If not, it can still be withdrawn."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """All that one entry of the configuration scales."""

    groups: tuple[Group, ...] = (Group(),)
    """In the order in which they are used."""
    instances: tuple[Instance, ...] = ()
    requests: tuple[Request, ...] = ()
    reserved: int = 0
    """Slots held by requests for jobs and by jobs that wait for theirs."""
    max_instances: int = 0
    """In all groups together; 0: as many as these may have."""
    owner: str = ""
    """Instances tagged as another's are never touched; they count in their group."""


class Soon(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are created, and not ready yet."""

    jobs: int
    ready_in_seconds: float = 0.0
    chance: float = 1.0
    """That they will be ready by then."""


class KeyDemand(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of one capability key ask of this fleet: its share, where others serve the key too."""

    key: str = ""
    running: int = 0
    """For people: what is in use is counted by slots, so that jobs of a lost instance buy none."""
    ending: int = 0
    """Of the running ones, those that will have ended when the next ones are ready."""
    ready: int = 0
    """They wait at the server."""
    waiting: int = 0
    """They were accepted, and wait for a slot here."""
    soon: tuple[Soon, ...] = ()


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """All that is asked for. From a plain GitLab there is nothing but waiting jobs."""

    keys: tuple[KeyDemand, ...] = ()


def free_slots(instance: Instance, limits: Limits) -> int:
    """Jobs that it could begin now if it were ready: slots that are not used, as far as its uses go."""
    free = max(limits.capacity - instance.slots_used, 0)
    return min(free, max(limits.max_use_count - instance.uses, 0)) if limits.max_use_count else free
