"""What a scaler is told: its groups and their limits, its policies, its intervals; and what it needs of who runs it.

Nothing is decided here. The manager makes a `FleetSetup` of one entry of its configuration, and is the `Machines` that
log in to instances and the `Told` that counts; tests have their own.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.port import ConnectInfo, Settings
from remuda.taskscaler.core.policy import PolicyRule
from remuda.taskscaler.core.values import Limits


class AcquireTimeoutError(Exception):
    """A job has waited for a slot for longer than it may, and none is on its way for it; the text says why not."""


class GoneError(PermanentError):
    """The scaler has no such instance any more: it was removed, or lost."""


class GroupSetup(msgspec.Struct, frozen=True, kw_only=True):
    """One instance group of a fleet."""

    name: str
    """Stable: it is part of the names of instances. May be empty."""
    config: Mapping[str, Any] = {}
    """The plugin's own, `plugin_config`."""
    settings: Settings = Settings()
    """Its `owner` is the fleet's, whatever stands here."""
    limits: Limits = Limits()
    use_external_addr: bool = False


class FleetSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What one entry of the configuration scales."""

    name: str
    """The stable key of the runner; it names the file with the state."""
    owner: str
    """`SYSTEM_ID/RUNNER_KEY`: the tag of its instances."""
    groups: tuple[GroupSetup, ...]
    """In the order in which they are used."""
    rules: tuple[PolicyRule, ...] = ()
    max_instances: int = 0
    """In all groups together; 0: as many as these may have."""
    acquire_seconds: float = 900.0
    """So long a job waits for a slot when none is on its way for it."""
    update_seconds: float = 60.0
    """Between looks at a group at rest."""
    expecting_seconds: float = 2.0
    """Between looks while something of it is on its way or in doubt."""
    heartbeat_seconds: float = 60.0
    demand_seconds: float = 5.0
    """Between questions to a server that tells its demand."""
    delete_on_shutdown: bool = False
    delete_because: str = "delete_instances_on_shutdown is set, and the manager stops"
    """What the log says of that."""
    shutdown_deletion_seconds: float = 10.0
    shutdown_deletion_retries: int = 3
    shutdown_seconds: float = 30.0
    preparing: int = 20
    """Instances that are prepared at the same time."""


class Machines(Protocol):
    """What the scaler wants done with machines; any number of calls at the same time. Instances go by their names."""

    async def prepare(self, instance: str, info: ConnectInfo) -> None:
        """Log in, and run the ready command. TemporaryError: it is tried again until the instance has had its time.
        PermanentError: the instance goes. Both say why."""
        ...

    async def check(self, instance: str) -> None:
        """Is it reachable and well, as far as can be seen from here? UnhealthyError says that it is not."""
        ...

    async def forget(self, instance: str) -> None:
        """It is gone: close what is open."""
        ...


class GroupGauges(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of one group that are so at present."""

    machines: dict[str, int]
    """Ours, by what they are for: creating, idle, busy, unavailable, removing."""
    hindered: dict[str, int]
    """Instances that are wanted and not created, by reason."""
    stuck: int
    """Of those that are being removed: asked for more than once."""
    is_well: bool
    """Its plugin answered when last asked."""
    plugin_starts: int


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that are so at present. Instances by upstream's states: requested, pending, creating, running, deleting;
    tasks: idle, pending, acquired, reserved, unavailable, unhealthy."""

    instances: dict[str, int]
    tasks: dict[str, int]
    max_instances: int
    max_tasks_per_instance: int
    max_use_count_per_instance: int
    desired_instances: int
    """The change that the last plan makes, not a level, as upstream has it."""
    at: float = 0.0
    """By the monotonic clock: what is so until the next time costs so long."""
    open_requests: int = 0
    may_grow: bool = True
    """Whether there may be more instances than there are."""
    groups: dict[str, GroupGauges] = {}


FAILURES = ("refused", "undelivered", "unprepared", "stuck", "lost")
"""Why a creation fails: its group did not accept it, did not show it, it could not be made ready, not in time, or it
vanished before it was."""


class ScalerMetrics(Protocol):
    """Who counts what happens; the words are those of upstream's metrics (fleeting_provisioner_, fleeting_taskscaler_).
    Nothing here may raise or wait."""

    def set_gauges(self, gauges: Gauges) -> None:
        """After every plan."""
        ...

    def count_instance_operation(self, operation: str, count: int = 1) -> None:
        """`instance_operations_total`: create, delete; what groups accepted."""
        ...

    def count_internal_operation(self, operation: str) -> None:
        """`internal_operations_total`: reconcile, removal, provision."""
        ...

    def count_scale_operation(self, operation: str) -> None:
        """`scale_operations_total`: up, down."""
        ...

    def count_task_operation(self, operation: str) -> None:
        """`task_operations_total`: acquire, acquire_timeout, release. Who asks for jobs counts reservations."""
        ...

    def count_missed_update(self) -> None:
        """`missed_updates_total`."""
        ...

    def observe(self, what: str, seconds: float) -> None:
        """instance_creation (first seen), instance_is_running, instance_deletion, instance_life_duration,
        task_instance_readiness; slot_wait: a job's, from being accepted to its slot."""
        ...

    def observe_boot(self, group: str, seconds: float) -> None:
        """From the request for an instance until it takes jobs."""
        ...

    def count_failed_creation(self, group: str, cause: str, seconds: float | None = None, count: int = 1) -> None:
        """An instance that was asked for will not take jobs; so long after it was. A cause of `FAILURES`."""
        ...

    def count_loss(self, group: str, cause: str) -> None:
        """An instance that took jobs is gone, and nobody here had it removed; whose doing it is, see `rebalancing`."""
        ...

    def set_orphans(self, count: int) -> None:
        """Instances that a sweep found without an owner, and left."""
        ...

    def count_decision(self, action: str, reason: str, count: int = 1) -> None:
        """Each thing that a plan says: create, remove, drain, forget, hindered."""
        ...

    def clear(self) -> None:
        """The fleet is no more: what `gauges` said last holds no longer."""
        ...


class NoMetrics:
    """Counts nothing."""

    def set_gauges(self, gauges: Gauges) -> None:
        pass

    def count_instance_operation(self, operation: str, count: int = 1) -> None:
        pass

    def count_internal_operation(self, operation: str) -> None:
        pass

    def count_scale_operation(self, operation: str) -> None:
        pass

    def count_task_operation(self, operation: str) -> None:
        pass

    def count_missed_update(self) -> None:
        pass

    def observe(self, what: str, seconds: float) -> None:
        pass

    def observe_boot(self, group: str, seconds: float) -> None:
        pass

    def count_failed_creation(self, group: str, cause: str, seconds: float | None = None, count: int = 1) -> None:
        pass

    def count_loss(self, group: str, cause: str) -> None:
        pass

    def set_orphans(self, count: int) -> None:
        pass

    def count_decision(self, action: str, reason: str, count: int = 1) -> None:
        pass

    def clear(self) -> None:
        pass


def instance_name(group: str, instance: str) -> str:
    """What an instance is called everywhere but at its plugin: two groups may use the same id."""
    return f"{group}/{instance}" if group else instance
