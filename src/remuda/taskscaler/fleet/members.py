"""Record of one instance, and its state for plans, which is computed from that record. Pure.

Invariant: a member is ready only if it runs, is prepared, was listed at the last update of its group, and answered its
last health check or has reached the failure threshold (then plans remove it). A member that is to be removed never
becomes ready again."""

import msgspec

from remuda.fleeting.port import ConnectInfo
from remuda.fleeting.port import InstanceState as Shown
from remuda.taskscaler.core.values import Cause, InstanceState, is_foreign_tag
from remuda.taskscaler.fleet.setup import FleetSetup

MISSES = 3
"""Number of updates in a row without an instance, after which it counts as lost."""
_GONE = frozenset({Shown.DELETED, Shown.TIMEOUT})
_STRANGE = frozenset({Shown.UNKNOWN, Shown.SUSPENDING, Shown.SUSPENDED, Shown.RESUMING})


class Member(msgspec.Struct, kw_only=True):
    """Record of one instance. The state file stores the fields up to `reported`, except `begun_at` and `error`."""

    id: str
    """The plugin's name for it."""
    group: str
    cause: Cause
    created_at: float
    begun_at: float
    """Start of the time limit for its preparation."""
    asked_at: float | None = None
    """Time of the request that it came from."""
    is_prepared: bool = False
    is_draining: bool = False
    removing_at: float | None = None
    """When its deletion was last requested."""
    removed_at: float | None = None
    """When its deletion was first requested."""
    owner: str = ""
    error: str = ""
    reported: int = 0
    """Jobs in a row that reported it as unhealthy."""
    # Of this process only:
    reported_at: float = float("-inf")
    """When a report of an unhealthy instance last counted."""
    shown: Shown | None = None
    """State at the last update; None: not listed in this process yet."""
    is_failed: bool = False
    missed: int = 0
    """Updates in a row that did not list it."""
    unanswered: int = 0
    """Failed health checks in a row."""
    check_at: float = 0.0
    info: ConnectInfo | None = None

    @property
    def failures(self) -> int:
        return max(self.reported, self.unanswered)

    @property
    def is_removing(self) -> bool:
        return self.removing_at is not None or self.shown is Shown.DELETING

    def is_foreign(self, owner: str) -> bool:
        """True if the tag of the instance at the provider names another owner than `owner`."""
        return is_foreign_tag(self.owner, owner)


def is_gone(shown: Shown) -> bool:
    return shown in _GONE


def state_of(member: Member, *, threshold: int) -> InstanceState:
    """State of an instance for a plan. A failed health check makes it SUSPECT, so it gets no jobs. After `threshold`
    failed checks in a row it is READY again, because then the number of failures makes plans remove or drain it."""
    if not member.is_removing and (member.missed >= MISSES or (member.shown is not None and is_gone(member.shown))):
        return InstanceState.LOST
    if member.is_removing:
        return InstanceState.DELETING
    if member.is_failed:
        return InstanceState.FAILED
    if member.shown is None or member.shown in _STRANGE:
        return InstanceState.UNKNOWN
    if member.is_draining:
        return InstanceState.DRAINING
    is_in_doubt = member.is_prepared and (0 < member.unanswered < threshold or (threshold <= 0 < member.unanswered))
    if member.missed or is_in_doubt:
        return InstanceState.SUSPECT
    is_ready = member.is_prepared and member.shown is Shown.RUNNING
    return InstanceState.READY if is_ready else InstanceState.CREATING


def strike_seconds(setup: FleetSetup, *, threshold: int) -> float:
    """Return the shortest time between two failures (health checks, bad reports of jobs) that both count towards the
    `threshold` for removal. So several failures within a short network outage remove no instance."""
    return max(setup.expecting_seconds, setup.heartbeat_seconds / 2 / max(threshold - 1, 1))


def to_prepare(member: Member, *, owner: str) -> bool:
    """True if the instance must be prepared (log in and run the ready command). False if it has another owner."""
    return (
        member.shown is Shown.RUNNING
        and not member.is_prepared
        and not member.is_failed
        and not member.is_draining
        and not member.is_removing
        and not member.is_foreign(owner)
    )
