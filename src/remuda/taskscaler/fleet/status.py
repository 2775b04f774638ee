"""Values that describe the status of a scaler, for the control socket, the command line and tests. Pure."""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from remuda.fleeting.errors import PermanentError
from remuda.taskscaler.core.decisions import Plan
from remuda.taskscaler.core.explain import explain
from remuda.taskscaler.core.values import Instance, Request
from remuda.taskscaler.fleet.gauges import fleet_of
from remuda.taskscaler.fleet.roster import Roster

FOREIGN = "foreign"


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """GROUP/ID, or the id alone in a group without a name."""
    id: str
    """The plugin's name for it."""
    group: str
    state: str
    """State in plans; `foreign`: of another owner, so it is left alone."""
    provider_state: str
    """State in its group; empty: not listed in this process yet."""
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
    """Its last error; for an instance of another owner a text with that owner."""
    holders: tuple[str, ...]


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    plugin: str
    """Name and version of the plugin."""
    is_current: bool
    starting_seconds: float | None = None
    """How long its plugin has been starting; None: the plugin runs, or waits for the next try."""
    error: str
    """The last error of its plugin or of a creation; empty when the group works again."""
    note: str
    """What the operator should know, such as a maximum below the configured one."""
    failures: int
    failed_at: float
    boot_seconds: float
    boots: int
    """Number of instances behind `boot_seconds`."""
    max_instances: int
    quota: int | None
    updated_at: float


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision of a plan about instances of a group, and the reason."""

    at: float
    action: str
    """create, remove, drain, forget."""
    group: str
    instance: str = ""
    count: int = 1
    reason: str
    text: str


class ScalerStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    owner: str
    at: float
    held: int
    waiting: int
    reserved: int
    """Open requests for jobs plus waiting jobs."""
    capacity: int | None
    instances: tuple[InstanceStatus, ...]
    requests: tuple[Request, ...]
    groups: tuple[GroupStatus, ...]
    plan: Plan | None
    """The last plan; None before the first one."""
    explanation: str
    decisions: tuple[Decision, ...]
    """Recent decisions, the latest last."""
    store_error: str = ""
    """Why the state cannot be written; no slot is handed out meanwhile."""
    demand_error: str = ""
    """Why the server's demand cannot be fetched; its last answer counts for `demand.BELIEVED_SECONDS`, then only jobs
    that wait here."""


def status_of(
    roster: Roster,
    *,
    plan: Plan | None,
    decisions: Iterable[Decision],
    now: float,
    open_requests: int,
    capacity: int | None,
    store_error: str,
    demand_error: str,
) -> ScalerStatus:
    groups = []
    for planned in fleet_of(roster, now, reserved=0).groups:
        group = roster.groups[planned.name]
        groups.append(
            GroupStatus(
                name=planned.name,
                plugin=group.plugin,
                is_current=group.is_current,
                starting_seconds=None if group.starting_at is None else now - group.starting_at,
                error=group.error,
                note=group.note,
                failures=group.failures,
                failed_at=group.failed_at,
                boot_seconds=planned.boot_seconds,
                boots=len(group.boots.seconds),
                max_instances=group.limits.max_instances,
                quota=planned.limits.quota,
                updated_at=group.updated_at,
            )
        )
    return ScalerStatus(
        name=roster.setup.name,
        owner=roster.setup.owner,
        at=now,
        held=roster.slots.used_count,
        waiting=len(roster.slots.waiters),
        reserved=open_requests + len(roster.slots.waiters),
        capacity=capacity,
        instances=tuple(_instance(roster, instance) for instance in roster.slots.instances),
        requests=tuple(request.as_request() for request in roster.requests.all.values() if request.missing),
        groups=tuple(groups),
        plan=plan,
        explanation="" if plan is None else explain(plan, now=now),
        decisions=tuple(decisions),
        store_error=store_error,
        demand_error=demand_error,
    )


def _instance(roster: Roster, instance: Instance) -> InstanceStatus:
    member = roster.members[instance.id]
    uses_external = {group.name: group.use_external_addr for group in roster.setup.groups}.get(instance.group, False)
    address = ""
    if member.info is not None:
        with suppress(PermanentError):
            address = member.info.address(use_external=uses_external)
    is_foreign = member.is_foreign(roster.setup.owner)
    return InstanceStatus(
        name=instance.id,
        id=member.id,
        group=instance.group,
        state=FOREIGN if is_foreign else instance.state.value,
        provider_state="" if member.shown is None else member.shown.value,
        since=instance.since,
        slots_used=instance.slots_used,
        capacity=roster.groups[instance.group].limits.capacity,
        uses=instance.uses,
        created_at=instance.created_at,
        idle_since=instance.idle_since,
        cause=instance.cause.value,
        address=address,
        owner=instance.owner,
        failures=instance.failures,
        error=f"tagged with the owner {instance.owner}" if is_foreign else member.error,
        holders=tuple(roster.slots.holders(instance.id).values()),
    )
