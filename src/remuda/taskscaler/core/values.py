"""Input of a plan: instances, their groups, and the demand of jobs. Times are seconds since the epoch.

A fleet is what one entry of the configuration scales: one group, or a *fallback chain*, where later groups are used for
what earlier ones cannot give. Invariant: an instance is busy exactly when slots of it are in use, whatever its state; a
busy one is never removed."""

from enum import StrEnum

import msgspec

DEFAULT_BOOT_SECONDS = 120.0
"""Assumed time from a request to a ready instance while none has been measured."""


class InstanceState(StrEnum):
    """State of an instance. Busy is not a state: a ready, draining or even creating instance can have jobs."""

    CREATING = "creating"  # exists in its group, but does not run yet, or is not prepared
    READY = "ready"  # takes jobs
    DRAINING = "draining"  # takes no more jobs, and goes when its present ones have ended
    FAILED = "failed"  # could not be prepared: no connection, or its ready command failed
    DELETING = "deleting"  # its deletion was requested, or its group shows it as being deleted
    LOST = "lost"  # gone from its group, and this manager did not remove it
    UNKNOWN = "unknown"  # its group reports unknown or suspended, or has not listed it in this process yet
    SUSPECT = "suspect"  # not listed at the last update, or failed its last health check: gets no job for now


class Cause(StrEnum):
    """Where an instance comes from: whether this manager requested it."""

    REQUESTED = "requested"  # this manager requested it
    PREEXISTED = "preexisted"  # existed before this manager started
    UNEXPECTED = "unexpected"  # appeared, and nobody here requested it


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    group: str = ""
    state: InstanceState = InstanceState.READY
    since: float = 0.0
    """In this state since then; for deleting: when its deletion was last requested."""
    slots_used: int = 0
    uses: int = 0
    """Jobs so far, the present ones included."""
    created_at: float = 0.0
    idle_since: float | None = None
    """Without a job since then; None: since `since`."""
    cause: Cause = Cause.REQUESTED
    warm: frozenset[str] = frozenset()
    """Keys of the caches on this instance: the projects whose jobs it has run."""
    failures: int = 0
    """Failed health checks in a row, or bad reports of jobs in a row if those are more."""
    owner: str = ""
    """Owner by its tag; empty: no tag, so it is treated as ours."""

    @property
    def is_busy(self) -> bool:
        return self.slots_used > 0


def is_foreign_tag(tag: str, owner: str) -> bool:
    """True if the owner in an instance's tag is not `owner`. False if there is no tag, or no owner to compare with."""
    return bool(tag and owner and tag != owner)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a group. A count of 0 means no limit unless stated otherwise."""

    max_instances: int = 0
    """Instances in any state, requested ones included."""
    capacity_per_instance: int = 1
    """Concurrent jobs on one instance; 0 is 1."""
    max_use_count: int = 0
    """Jobs of an instance in its lifetime."""
    max_creating: int = 0
    """Instances that may be starting at the same time (Docker Machine's `MaxGrowthRate`)."""
    throttle_limit: float = 0.0
    """Requested instances per second; 0 is 100, below 0 any number."""
    throttle_burst: int = 0
    """Instances that can be requested at once after a pause; 0 is `max_instances`, or else those of one second."""
    failure_threshold: int = 3
    """Failed health checks, or bad reports of jobs, in a row that make an instance unhealthy; failed creations in a row
    after which a group may create one instance at a time."""
    quota: int | None = None
    """Instances that the provider allows at present; None: unknown."""
    creation_seconds: float = 900.0
    """Time limit until an instance is ready."""
    delivery_seconds: float = 600.0
    """Time limit until the group shows a requested instance."""
    deletion_retry_seconds: float = 60.0

    @property
    def capacity(self) -> int:
        return max(self.capacity_per_instance, 1)

    @property
    def fresh(self) -> int:
        """Number of jobs that a new instance can run at the same time."""
        return min(self.capacity, self.max_use_count) if self.max_use_count else self.capacity


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """Token bucket that limits requests for instances, as it was at the time `at`."""

    tokens: float
    at: float


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group of equal instances at a provider, with its limits and its recent failures to create instances."""

    name: str = ""
    limits: Limits = Limits()
    bucket: Bucket | None = None
    """None: full."""
    failures: int = 0
    """Failed creations in a row: refused, never listed, not prepared, not ready in time, or vanished before that."""
    failed_at: float = 0.0
    """Time of the last failure."""
    is_current: bool = True
    """Its plugin answered the last update; if not, nothing is created."""
    boot_seconds: float = DEFAULT_BOOT_SECONDS


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Instances that were requested from a group and that the group has not listed yet."""

    group: str = ""
    count: int = 1
    asked_at: float = 0.0
    is_sent: bool = True
    """False: it can still be withdrawn."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    groups: tuple[Group, ...] = (Group(),)
    """In the order of the fallback chain."""
    instances: tuple[Instance, ...] = ()
    requests: tuple[Request, ...] = ()
    reserved: int = 0
    """Slots reserved by open requests for jobs and by jobs that wait."""
    max_instances: int = 0
    """Limit for all groups together; 0: the groups' own limits."""
    owner: str = ""
    """Instances tagged with another owner count in their group and are never changed."""


class Soon(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that exist at the server and will be ready to run later, because they wait for other jobs."""

    jobs: int
    ready_in_seconds: float = 0.0
    chance: float = 1.0
    """Probability that they are ready by then."""


class KeyDemand(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of jobs of one capability key (jobs with equal needs): only this fleet's share of these jobs."""

    key: str = ""
    running: int = 0
    """Plans count slots in use instead of these jobs, so jobs of a lost instance create nothing."""
    ending: int = 0
    """Running jobs that will have ended when the next ones are ready."""
    ready: int = 0
    """Jobs that wait at the server."""
    waiting: int = 0
    """Accepted jobs that wait for a slot here."""
    soon: tuple[Soon, ...] = ()


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that need slots, by capability key. With GitLab only accepted jobs are known."""

    keys: tuple[KeyDemand, ...] = ()


def free_slots(instance: Instance, limits: Limits) -> int:
    """How many more jobs the instance could run now if it were ready: unused slots, limited by `max_use_count`."""
    free = max(limits.capacity - instance.slots_used, 0)
    return min(free, max(limits.max_use_count - instance.uses, 0)) if limits.max_use_count else free
