"""Configuration of a scaler (groups, limits, policies, intervals), and the ports that its caller implements.

The manager makes a `FleetSetup` from one entry of its configuration, and implements `ScalerHost` (log in to instances,
ask for the server's demand, hear of lost instances) and `ScalerMetrics`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.port import ConnectInfo, Settings
from remuda.taskscaler.core.policy import PolicyRule
from remuda.taskscaler.core.values import Demand, Limits


class AcquireTimeoutError(Exception):
    """A job waited too long for a slot, and none is coming for it; the text says why."""


class GoneError(PermanentError):
    """The instance was removed or lost."""


class GroupSetup(msgspec.Struct, frozen=True, kw_only=True):
    """One instance group of a fleet."""

    name: str
    """Must not change: it is part of the names of instances. May be empty."""
    config: Mapping[str, Any] = {}
    """`plugin_config`."""
    settings: Settings = Settings()
    """`owner` is replaced by the fleet's."""
    limits: Limits = Limits()
    use_external_addr: bool = False


class FleetSetup(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Stable key of the runner; names the state file."""
    owner: str
    """`SYSTEM_ID/RUNNER_KEY`: the tag of its instances."""
    groups: tuple[GroupSetup, ...]
    """In the order of the fallback chain."""
    rules: tuple[PolicyRule, ...] = ()
    max_instances: int = 0
    """Limit for all groups together; 0: the groups' own limits."""
    acquire_seconds: float = 900.0
    """How long a job waits for a slot when none is coming for it."""
    update_seconds: float = 60.0
    """Interval between updates of a group in which nothing changes."""
    expecting_seconds: float = 2.0
    """Interval between updates while something is expected to change."""
    heartbeat_seconds: float = 60.0
    demand_seconds: float = 5.0
    """Interval between requests for the server's demand."""
    delete_on_shutdown: bool = False
    delete_because: str = "delete_instances_on_shutdown is set, and the manager stops"
    """The reason in the log."""
    shutdown_deletion_seconds: float = 10.0
    shutdown_deletion_retries: int = 3
    shutdown_seconds: float = 30.0
    preparing: int = 20
    """Number of instances that are prepared at the same time."""


class Machines(Protocol):
    """Access to machines. Calls may be concurrent. `instance` is the name in the fleet."""

    async def prepare(self, instance: str, info: ConnectInfo) -> None:
        """Log in and run the ready command.

        TemporaryError: it is tried again until `creation_seconds` are over. PermanentError: the instance is removed.
        """

    async def check(self, instance: str) -> None:
        """Check that the instance is reachable. Raises UnhealthyError if it is not."""

    async def forget(self, instance: str) -> None:
        """The instance is gone: close connections to it."""


FetchDemand = Callable[[Mapping[str, int]], Awaitable[Demand]]
"""Asks the server for its demand. The argument: how many jobs of each key wait here."""


class ScalerHost(msgspec.Struct, frozen=True, kw_only=True):
    """What a scaler calls in the program that runs it."""

    machines: Machines
    fetch_demand: FetchDemand | None = None
    """None: only jobs that wait here count."""
    on_lost: Callable[[str, Sequence[str], str], None] = lambda _instance, _holders, _cause: None
    """Called with an instance that is gone while jobs held slots of it, with these holders and the cause."""


class GroupGauges(msgspec.Struct, frozen=True, kw_only=True):
    """Current numbers of one group."""

    machines: dict[str, int]
    """Own instances by use: creating, idle, busy, unavailable, removing."""
    hindered: dict[str, int]
    """Wanted instances that are not created, by reason."""
    stuck: int
    """Instances whose deletion was requested more than once."""
    is_well: bool
    """Its plugin answered the last update."""
    plugin_starts: int


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """Current numbers of a fleet, by upstream's states.

    Instances: requested, pending, creating, running, deleting. Tasks: idle, pending, acquired, reserved, unavailable,
    unhealthy.
    """

    instances: dict[str, int]
    tasks: dict[str, int]
    max_instances: int
    max_tasks_per_instance: int
    max_use_count_per_instance: int
    desired_instances: int
    """Change by the last plan, not a level; as upstream defines it."""
    at: float = 0.0
    """Time of the monotonic clock, to compute machine seconds."""
    open_requests: int = 0
    may_grow: bool = True
    """True if the limits allow more instances."""
    groups: dict[str, GroupGauges] = {}


FAILURES = ("refused", "undelivered", "unprepared", "stuck", "lost")
"""Why a creation fails: not accepted, never shown, could not be prepared, not ready in time, or vanished before it
was ready."""


class ScalerMetrics(Protocol):
    """Metrics of a scaler, named as upstream's (fleeting_provisioner_, fleeting_taskscaler_).

    No method may raise or block. A class that inherits from this counts nothing with the methods it leaves out.
    """

    def set_gauges(self, gauges: Gauges) -> None:
        """Replace the gauges. Called after every plan."""
        return

    def count_instance_operation(self, operation: str, count: int = 1) -> None:
        """`instance_operations_total`: create, delete. Counts accepted instances."""
        return

    def count_internal_operation(self, operation: str) -> None:
        """Count for `internal_operations_total`: reconcile, removal, provision."""
        return

    def count_scale_operation(self, operation: str) -> None:
        """Count for `scale_operations_total`: up, down."""
        return

    def count_task_operation(self, operation: str) -> None:
        """`task_operations_total`: acquire, acquire_timeout, release. The poller counts reservations."""
        return

    def count_missed_update(self) -> None:
        """Count an instance that an update did not show, for `missed_updates_total`."""
        return

    def observe(self, what: str, seconds: float) -> None:
        """Record a duration.

        `what`: instance_creation (until first shown), instance_is_running, instance_deletion, instance_life_duration,
        task_instance_readiness, slot_wait (of a job, from its acceptance to its slot).
        """
        return

    def observe_boot(self, group: str, seconds: float) -> None:
        """Record the time from a request until its instance takes jobs."""
        return

    def count_failed_creation(self, group: str, cause: str, seconds: float | None = None, count: int = 1) -> None:
        """Count requested instances that will never take jobs. `cause` is one of `FAILURES`, `seconds` since the
        request."""
        return

    def count_loss(self, group: str, cause: str) -> None:
        """Count an instance that took jobs and vanished. `cause`: a `rebalancing.Meddling`."""
        return

    def set_orphans(self, count: int) -> None:
        """Number of orphans that a sweep found and did not remove."""
        return

    def count_decision(self, action: str, reason: str, count: int = 1) -> None:
        """Count a decision of a plan. `action`: create, remove, drain, forget, hindered."""
        return

    def clear(self) -> None:
        """The fleet has ended: drop its gauges."""
        return


class NoMetrics(ScalerMetrics):
    """Counts nothing, for tests and for managers without metrics."""


def instance_name(group: str, instance: str) -> str:
    """Name of an instance in the fleet. Ids of plugins may be equal in two groups."""
    return f"{group}/{instance}" if group else instance
