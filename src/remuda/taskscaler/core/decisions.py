"""What a plan says: what to do, and why, as data. `explain` puts it into words; metrics and logs take the reasons.

Nothing is decided here. Each reason has its numbers, named in the table of docs/reference/scaling.md.
"""

from enum import StrEnum

import msgspec

from remuda.taskscaler.core.values import Bucket

Number = int | float | str


class Reason(StrEnum):
    """Why something is done, or is not."""

    # create
    WAITING_JOBS = "waiting_jobs"  # accepted jobs wait for a slot
    READY_JOBS = "ready_jobs"  # jobs wait at the server
    SOON_JOBS = "soon_jobs"  # jobs will be ready by the time that an instance is
    IDLE_TARGET = "idle_target"  # the policy wants idle slots
    # do not create, or not as many, or in another group
    MAX_INSTANCES = "max_instances"
    QUOTA = "quota"  # the provider gives no more
    THROTTLED = "throttled"  # too many were asked for lately
    MAX_CREATING = "max_creating"  # too many are on their way
    BACKING_OFF = "backing_off"  # the last creations failed
    PROBING = "probing"  # so many failed that the next one must succeed first
    NOT_CURRENT = "not_current"  # the group's plugin does not answer
    # remove
    IDLE = "idle"  # not needed for longer than idle_time
    USED_UP = "used_up"  # has had as many jobs as it may
    UNHEALTHY = "unhealthy"  # its health checks fail; with jobs it is drained first
    FAILED = "failed"  # could not be prepared
    STUCK = "stuck"  # does not get ready
    DRAINED = "drained"  # the jobs that it should finish have ended
    OVER_LIMIT = "over_limit"  # there are more than the limit; with jobs it is drained first
    UNAWAITED = "unawaited"  # on its way for nobody, in a fleet that ends
    RETRIED = "retried"  # was asked to go, and is still there
    # forget
    LOST = "lost"  # gone without our doing
    GONE = "gone"  # another's, and no more
    UNDELIVERED = "undelivered"  # asked for, accepted, never shown
    WITHDRAWN = "withdrawn"  # asked for, not sent yet, not needed any more
    # keep, though it is not needed
    NOT_IDLE_LONG = "not_idle_long"  # idle_time is not over
    RESERVED = "reserved"  # a request for a job holds its slots
    UNKNOWN_STATE = "unknown_state"  # nobody knows what it is doing
    SUSPECT = "suspect"  # it may be gone, or ill: that shows in a moment
    FOREIGN = "foreign"  # another's, by its tag, or of a group that is not configured


class Because(msgspec.Struct, frozen=True, kw_only=True):
    """A reason with its numbers."""

    reason: Reason
    numbers: dict[str, Number] = {}


class Creation(msgspec.Struct, frozen=True, kw_only=True):
    """Instances to ask a group for."""

    group: str
    count: int
    because: tuple[Because, ...]
    """What their slots are for, the most urgent first."""


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """An instance to remove."""

    id: str
    group: str
    because: Because


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """An instance to give no more jobs."""

    id: str
    group: str
    because: Because


class Forgetting(msgspec.Struct, frozen=True, kw_only=True):
    """What is not counted any more: a lost instance, or requests of a group that nothing came of."""

    group: str
    because: Because
    id: str = ""
    """Empty: requests."""
    count: int = 1
    asked_at: float = 0.0
    """Of requests: which."""


class Hindrance(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a group from giving as many instances as are wanted, or instances from going."""

    group: str
    because: Because
    count: int
    """Instances that it concerns."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that a plan follows from, in slots unless it says instances."""

    acquired: int = 0
    waiting: int = 0
    ready: int = 0
    soon: int = 0
    idle_target: int = 0
    free: int = 0
    """Of ready instances."""
    coming: int = 0
    """Of instances on their way, and of those whose state is unknown."""
    reserved: int = 0
    instances: int = 0
    """Instances: all that hold a place, requests included."""
    max_instances: int = 0
    """Instances; 0: no limit."""

    @property
    def slots_wanted(self) -> int:
        return self.acquired + self.waiting + self.ready + self.soon + self.idle_target

    @property
    def missing(self) -> int:
        """What there is not, and is not coming; not below 0."""
        return max(self.slots_wanted - self.acquired - self.free - self.coming, 0)

    @property
    def surplus(self) -> int:
        """What is ready and not wanted; not below 0. What is still coming makes nothing that is ready superfluous."""
        return max(self.acquired + self.free - self.slots_wanted, 0)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now."""

    terms: Terms
    policy: str
    """The period that it is by."""
    create: tuple[Creation, ...] = ()
    remove: tuple[Removal, ...] = ()
    drain: tuple[Drain, ...] = ()
    forget: tuple[Forgetting, ...] = ()
    hindered: tuple[Hindrance, ...] = ()
    buckets: dict[str, Bucket] = {}
    """Of each group whose creations are throttled, after this plan: to be kept for the next one."""
    reservable: int | None = None
    """Slots that may be reserved in all; None: any number."""
    look_again_at: float | None = None
    """Something will be otherwise then even if nothing happens; None: never."""
    keys: tuple[tuple[str, int], ...] = ()
    """The capability keys that want the most new slots, for people."""

    @property
    def is_empty(self) -> bool:
        """Whether all is as it should be, or cannot be changed now."""
        return not (self.create or self.remove or self.drain or self.forget)

    @property
    def creation_count(self) -> int:
        return sum(one.count for one in self.create)
