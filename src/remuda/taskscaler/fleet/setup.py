"""Configuration of a scaler (groups, limits, policies, intervals), and the interfaces that its caller implements."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.port import ConnectInfo, Settings
from remuda.taskscaler.core.policy import PolicyRule
from remuda.taskscaler.core.values import Demand, Limits


class AcquireTimeoutError(Exception):
    """A job gets no slot: it waited too long and no instance is starting for it, or a plugin that scales by itself
    refused it. The text says why."""


class GoneError(PermanentError):
    """The instance was removed, or disappeared from its group."""


class GroupSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of one instance group of a fleet: its name, the settings of its plugin, and its limits."""

    name: str
    """Must not change: it is part of the names of instances. May be empty."""
    config: Mapping[str, Any] = {}
    """`plugin_config`: settings that only the plugin understands."""
    settings: Settings = Settings()
    """Its `owner` is that of the fleet."""
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
    """Why instances are deleted on shutdown, for the log."""
    shutdown_deletion_seconds: float = 10.0
    """How long an attempt to delete instances waits until they are gone."""
    shutdown_deletion_retries: int = 3
    shutdown_seconds: float = 30.0
    """Time limit for the whole shutdown."""
    preparing: int = 20
    """Number of instances that are prepared at the same time."""


class Machines(Protocol):
    """Access to instances by SSH or another protocol. Called concurrently. `instance`: a name from `instance_name`."""

    async def prepare(self, instance: str, info: ConnectInfo) -> None:
        """Log in to an instance and run its ready command. Raises TemporaryError if a retry may help; the caller
        retries until `creation_seconds` are over. Raises PermanentError if not; the caller removes the instance."""

    async def check(self, instance: str) -> None:
        """Check that the instance is healthy: reachable, and with enough free disk space. Raises UnhealthyError if it
        is not, another TemporaryError or a PermanentError if the check was not possible."""

    async def forget(self, instance: str) -> None:
        """Close all connections to an instance that does not exist any more."""


FetchDemand = Callable[[Mapping[str, int]], Awaitable[Demand]]
"""Asks the server for its demand. The argument: how many jobs of each key wait here."""


class ScalerHost(msgspec.Struct, frozen=True, kw_only=True):
    """What the manager provides to a scaler: access to instances, the server's demand, a report of lost jobs."""

    machines: Machines
    fetch_demand: FetchDemand | None = None
    """None: only jobs that wait here count."""
    on_lost: Callable[[str, Sequence[str], str], None] = lambda _instance, _holders, _cause: None
    """Called with an instance that is gone while jobs held slots of it, with these holders and the cause."""


class GroupGauges(msgspec.Struct, frozen=True, kw_only=True):
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
    """Numbers of instances and jobs by GitLab Runner's states (`gauges.INSTANCE_STATES`, `gauges.TASK_STATES`)."""

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
    """Interface for the metrics of a scaler, named as GitLab Runner's (fleeting_provisioner_, fleeting_taskscaler_). No
    method may raise or block. All methods do nothing here, so a subclass implements those that it needs."""

    def set_gauges(self, gauges: Gauges) -> None:
        """Replace the gauges. Called after every plan."""
        return

    def count_instance_operation(self, operation: str, count: int = 1) -> None:
        """Count instances that a plugin accepted, for `instance_operations_total`. `operation`: create, delete."""
        return

    def count_internal_operation(self, operation: str) -> None:
        """Count a call of a plugin, for `internal_operations_total`. `operation`: reconcile, removal, provision."""
        return

    def count_scale_operation(self, operation: str) -> None:
        """Count a plan that creates or removes instances, for `scale_operations_total`. `operation`: up, down."""
        return

    def count_task_operation(self, operation: str) -> None:
        """Count a job's operation, for `task_operations_total`. `operation`: acquire, acquire_timeout, release."""
        return

    def count_missed_update(self) -> None:
        """Count an instance that its group did not list in an update, for `missed_updates_total`."""
        return

    def observe(self, what: str, seconds: float) -> None:
        """Record a duration. `what`: instance_creation and instance_is_running (request until listed or running),
        instance_deletion, instance_life_duration, task_instance_readiness (preparation), slot_wait (of a job)."""
        return

    def observe_boot(self, group: str, seconds: float) -> None:
        """Record the time from the request for an instance until the instance takes jobs."""
        return

    def count_failed_creation(self, group: str, cause: str, seconds: float | None = None, count: int = 1) -> None:
        """Count requested instances that will never take jobs. `cause`: of `FAILURES`; `seconds`: since the request."""
        return

    def count_loss(self, group: str, cause: str) -> None:
        """Count an instance that was ready for jobs and disappeared. `cause`: a value of `rebalancing.Meddling`."""
        return

    def set_orphans(self, count: int) -> None:
        """Set how many orphans (our instances without a configured fleet) the last search found and did not remove."""
        return

    def count_decision(self, action: str, reason: str, count: int = 1) -> None:
        """Count decisions of a plan about `count` instances. `action`: create, remove, drain, forget (stop counting a
        lost or undelivered instance), hindered (not created or removed); `reason`: a value of `decisions.Reason`."""
        return

    def clear(self) -> None:
        """Drop the gauges of the fleet, because it has been shut down."""
        return


class NoMetrics(ScalerMetrics):
    """Counts nothing, for tests and for managers without metrics."""


def instance_name(group: str, instance: str) -> str:
    """Name of an instance in the fleet: `GROUP/ID`, because ids (the plugin's) can be equal in two groups."""
    return f"{group}/{instance}" if group else instance
