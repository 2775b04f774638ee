"""What is known of one instance beyond what a plan wants of it, and the state that follows. Pure.

Decided here: which state an instance is in for a plan, given what its group shows, whether it has been prepared, what
its health checks say and what was asked of it; and how far apart failures have to be to count. `roster` keeps the
members and tells the slots.

Invariant: only a member that runs, is prepared, was shown when its group was last asked, and answered when it was last
checked is ready; one that was asked to go never is again.
"""

import msgspec

from remuda.fleeting.port import ConnectInfo
from remuda.fleeting.port import InstanceState as Shown
from remuda.taskscaler.core.values import Cause, InstanceState
from remuda.taskscaler.fleet.setup import FleetSetup

MISSES = 3
"""Updates in a row that do not show an instance until it is taken to be lost."""
_GONE = frozenset({Shown.DELETED, Shown.TIMEOUT})
_STRANGE = frozenset({Shown.UNKNOWN, Shown.SUSPENDING, Shown.SUSPENDED, Shown.RESUMING})


class Member(msgspec.Struct, kw_only=True):
    """One instance."""

    id: str
    """What its plugin calls it."""
    group: str
    cause: Cause
    created_at: float
    begun_at: float
    """When it began to get ready."""
    asked_at: float | None = None
    """When the request was made that it came of."""
    is_prepared: bool = False
    is_draining: bool = False
    removing_at: float | None = None
    """When its group was last to be asked to delete it."""
    removed_at: float | None = None
    """When it was asked first."""
    owner: str = ""
    error: str = ""
    reported: int = 0
    """Jobs in a row that found it unwell."""
    # Of this process only:
    reported_at: float = float("-inf")
    """When that last counted."""
    shown: Shown | None = None
    """None: not yet."""
    is_failed: bool = False
    missed: int = 0
    unanswered: int = 0
    """Health checks in a row that failed."""
    check_at: float = 0.0
    info: ConnectInfo | None = None

    @property
    def failures(self) -> int:
        return max(self.reported, self.unanswered)

    @property
    def is_removing(self) -> bool:
        return self.removing_at is not None or self.shown is Shown.DELETING

    def is_foreign(self, owner: str) -> bool:
        """Another's, by its tag."""
        return bool(owner and self.owner and self.owner != owner)


def is_gone(shown: Shown) -> bool:
    """Whether a group says of an instance that there is none."""
    return shown in _GONE


def state_of(member: Member, *, threshold: int) -> InstanceState:
    """The state for a plan; `threshold` failed checks make an instance unhealthy, which a plan has to see as ready."""
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
    """Between failures that count against an instance: all that it may have lie as far apart as half of the time
    between checks at rest, so that a moment without a network costs none."""
    return max(setup.expecting_seconds, setup.heartbeat_seconds / 2 / max(threshold - 1, 1))


def to_prepare(member: Member, *, owner: str) -> bool:
    """Whether somebody has to log in to it and run the ready command."""
    return (
        member.shown is Shown.RUNNING
        and not member.is_prepared
        and not member.is_failed
        and not member.is_draining
        and not member.is_removing
        and not member.is_foreign(owner)
    )
