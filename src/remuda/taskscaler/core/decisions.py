"""Values of a plan: what to do with which instances, and why. docs/reference/scaling.md lists each reason's numbers."""

from enum import StrEnum

import msgspec

from remuda.taskscaler.core.values import Bucket

Number = int | float | str


class Reason(StrEnum):
    """Why a plan creates, removes, drains, keeps or forgets (stops counting) an instance, or creates none."""

    # create
    WAITING_JOBS = "waiting_jobs"  # accepted jobs wait for a slot
    READY_JOBS = "ready_jobs"  # jobs wait at the server
    SOON_JOBS = "soon_jobs"  # jobs will be ready by the time that a new instance is
    IDLE_TARGET = "idle_target"  # the policy wants idle slots
    # do not create, or not as many, or in another group
    MAX_INSTANCES = "max_instances"
    QUOTA = "quota"  # the provider gives no more
    THROTTLED = "throttled"  # the rate limit of the group is reached
    MAX_CREATING = "max_creating"  # too many are starting
    BACKING_OFF = "backing_off"  # the last creations failed
    PROBING = "probing"  # so many creations failed that one must succeed first
    NOT_CURRENT = "not_current"  # the group's plugin does not answer
    # remove
    IDLE = "idle"  # idle for idle_time or longer, and not needed
    USED_UP = "used_up"  # has run max_use_count jobs
    UNHEALTHY = "unhealthy"  # its health checks or jobs report errors; with jobs it is drained first
    FAILED = "failed"  # could not be prepared
    STUCK = "stuck"  # not ready within the time limit
    DRAINED = "drained"  # was drained, and its jobs have ended
    OVER_LIMIT = "over_limit"  # there are more than the limit; with jobs it is drained first
    UNAWAITED = "unawaited"  # starting although no job waits for it, in a fleet that ends
    RETRIED = "retried"  # its deletion was requested, but it still exists
    # forget
    LOST = "lost"  # gone, and this manager did not remove it
    GONE = "gone"  # gone, and tagged as another owner's
    UNDELIVERED = "undelivered"  # requested and accepted, never shown by the group
    WITHDRAWN = "withdrawn"  # planned, not sent yet, not needed any more
    # keep, though it is not needed
    NOT_IDLE_LONG = "not_idle_long"  # idle_time is not over
    RESERVED = "reserved"  # open requests for jobs reserve its slots
    UNKNOWN_STATE = "unknown_state"  # its group reports a state in which it can neither take jobs nor be removed
    SUSPECT = "suspect"  # not shown or not healthy at the last look; the next look decides
    FOREIGN = "foreign"  # tagged as another owner's, or of a group that is not configured


class Because(msgspec.Struct, frozen=True, kw_only=True):
    """A reason with the numbers that its text shows, such as a limit or a time."""

    reason: Reason
    numbers: dict[str, Number] = {}


class Creation(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    count: int
    because: tuple[Because, ...]
    """What the slots are needed for, the most urgent first."""


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    group: str
    because: Because


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """Decision that an instance gets no more jobs; it is removed when its running jobs have ended."""

    id: str
    group: str
    because: Because


class Forgetting(msgspec.Struct, frozen=True, kw_only=True):
    """Decision to stop counting a lost instance, or requested instances that never appeared or are withdrawn."""

    group: str
    because: Because
    id: str = ""
    """Instance id; empty for requests."""
    count: int = 1
    asked_at: float = 0.0
    """Time of the forgotten requests, which identifies them in their group."""


class Hindrance(msgspec.Struct, frozen=True, kw_only=True):
    """Why a number of instances of a group are not created although wanted, or not removed although not needed."""

    group: str
    because: Because
    count: int
    """Number of instances concerned."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The counts behind a plan: slots in use, wanted, free or coming. In slots unless stated otherwise."""

    acquired: int = 0
    waiting: int = 0
    ready: int = 0
    soon: int = 0
    idle_target: int = 0
    free: int = 0
    """Free slots of ready instances."""
    coming: int = 0
    """Slots of starting instances, and of those in the states unknown and suspect."""
    reserved: int = 0
    instances: int = 0
    """Number of instances, requested ones included."""
    max_instances: int = 0
    """Limit on instances; 0: no limit."""

    @property
    def slots_wanted(self) -> int:
        return self.acquired + self.waiting + self.ready + self.soon + self.idle_target

    @property
    def missing(self) -> int:
        """Number of wanted slots that neither exist nor will come with starting instances."""
        return max(self.slots_wanted - self.acquired - self.free - self.coming, 0)

    @property
    def surplus(self) -> int:
        """Number of slots of ready instances that are not wanted; slots of starting instances do not count."""
        return max(self.acquired + self.free - self.slots_wanted, 0)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Instances to create, remove, drain (no more jobs) and forget (stop counting) now, with reasons and counts."""

    terms: Terms
    policy: str
    """Period of the policy in effect, as text."""
    create: tuple[Creation, ...] = ()
    remove: tuple[Removal, ...] = ()
    drain: tuple[Drain, ...] = ()
    forget: tuple[Forgetting, ...] = ()
    hindered: tuple[Hindrance, ...] = ()
    buckets: dict[str, Bucket] = {}
    """Token bucket of each throttled group after this plan; input of the next plan."""
    reservable: int | None = None
    """How many slots may be reserved in total; None: any number."""
    look_again_at: float | None = None
    """The plan may change at this time even without an event; None: never."""
    keys: tuple[tuple[str, int], ...] = ()
    """The capability keys with the most jobs that want slots, for display."""

    @property
    def is_empty(self) -> bool:
        """True if the plan changes no instance: nothing is needed, or limits prevent it."""
        return not (self.create or self.remove or self.drain or self.forget)

    @property
    def creation_count(self) -> int:
        return sum(creation.count for creation in self.create)
