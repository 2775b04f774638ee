"""What there is to see of a scaler: for the control socket, the command line, and tests. Values only."""

import msgspec

from remuda.taskscaler.decisions import Plan
from remuda.taskscaler.values import Request


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One instance."""

    name: str
    """What the scaler calls it: GROUP/ID, or the id alone in a group without a name."""
    id: str
    """What its plugin calls it."""
    group: str
    state: str
    provider_state: str
    """As its group calls it; empty: not shown in this process yet."""
    since: float
    slots_used: int
    capacity: int
    uses: int
    created_at: float
    idle_since: float | None
    cause: str
    address: str
    owner: str
    failures: int
    error: str
    """What went wrong with it last."""
    holders: tuple[str, ...]


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One group."""

    name: str
    plugin: str
    """What the plugin calls itself, with its version."""
    is_current: bool
    error: str
    """What went wrong with it last, until it works again."""
    note: str
    """What should be known of it, such as a maximum that is below the configured one."""
    failures: int
    failed_at: float
    boot_seconds: float
    boots: int
    """Instances that this was learned from."""
    max_instances: int
    quota: int | None
    updated_at: float


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was decided, and why."""

    at: float
    action: str
    """create, remove, drain, forget."""
    group: str
    instance: str = ""
    count: int = 1
    reason: str
    text: str


class ScalerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    name: str
    owner: str
    at: float
    held: int
    waiting: int
    reserved: int
    """Open requests for jobs and jobs that wait."""
    capacity: int | None
    instances: tuple[InstanceStatus, ...]
    requests: tuple[Request, ...]
    groups: tuple[GroupStatus, ...]
    plan: Plan | None
    """The last one; None: there was none yet."""
    explanation: str
    decisions: tuple[Decision, ...]
    """Of late, the latest last."""
    store_error: str = ""
    """Why the state cannot be written at present; slots are not handed out meanwhile."""
