"""Metrics of autoscaling: gitlab-runner's `fleeting_provisioner_*` and `fleeting_taskscaler_*`, and
`remuda_manager_scaling_*`. Counters with known label values are created at zero when the scaler first decides how many
machines it needs (its first plan), so that Prometheus computes rates from the first event on."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from remuda.manager.config.fleet_setup import DOCKER_MACHINE_EXECUTOR
from remuda.manager.metrics.machine_metrics import MachineCounts
from remuda.taskscaler.core.rebalancing import Meddling

if TYPE_CHECKING:
    from remuda.manager.config.values import RunnerConfig
    from remuda.manager.metrics.metrics import ManagerMetrics
    from remuda.taskscaler.fleet.setup import Gauges

_PROVISIONER, _TASKSCALER, _OWN = "fleeting_provisioner", "fleeting_taskscaler", "remuda_manager_scaling"
SCALING_GAUGES = (
    f"{_PROVISIONER}_instances",
    f"{_PROVISIONER}_max_instances",
    f"{_TASKSCALER}_tasks",
    f"{_TASKSCALER}_max_tasks_per_instance",
    f"{_TASKSCALER}_max_use_count_per_instance",
    f"{_TASKSCALER}_desired_instances",
    f"{_OWN}_hindered_instances",
    f"{_OWN}_group_well",
    f"{_OWN}_orphans",
)
_TIMES = {
    "instance_creation": f"{_PROVISIONER}_instance_creation_time_seconds",
    "instance_is_running": f"{_PROVISIONER}_instance_is_running_time_seconds",
    "instance_deletion": f"{_PROVISIONER}_instance_deletion_time_seconds",
    "instance_life_duration": f"{_PROVISIONER}_instance_life_duration_seconds",
    "task_instance_readiness": f"{_TASKSCALER}_task_instance_readiness_time_seconds",
    "slot_wait": f"{_OWN}_slot_wait_seconds",
}
_OPERATIONS = {
    f"{_PROVISIONER}_instance_operations_total": ("create", "delete", "suspend", "resume"),
    f"{_PROVISIONER}_internal_operations_total": ("reconcile", "removal", "provision"),
    f"{_TASKSCALER}_scale_operations_total": ("up", "down"),
    f"{_TASKSCALER}_task_operations_total": (
        "acquire",
        "acquire_timeout",
        "release",
        "reserve",
        "unreserve",
        "reserve_iop_capacity_failure",
        "reserve_available_capacity_failure",
    ),
}


class ScalingCounts:
    """Updates the metrics of one scaler, which calls the methods of the interface `ScalerMetrics`."""

    def __init__(self, metrics: "ManagerMetrics", runner: Callable[[], "RunnerConfig"]) -> None:
        self._metrics = metrics
        self._runner = runner
        self._last: Gauges | None = None
        self._labels_seen: tuple[str, ...] = ()
        self._machines = MachineCounts(metrics, runner) if runner().executor == DOCKER_MACHINE_EXECUTOR else None

    @property
    def short_token(self) -> str:
        return self._runner().short_token

    @property
    def _labels(self) -> tuple[str, str, str]:
        return self._metrics.labels(self._runner())

    def set_gauges(self, gauges: "Gauges") -> None:
        labels, gauge = self._labels, self._metrics.gauge
        self._begin(labels, gauges)
        for state, number in gauges.instances.items():
            gauge(f"{_PROVISIONER}_instances").labels(*labels, state).set(number)
        for state, number in gauges.tasks.items():
            gauge(f"{_TASKSCALER}_tasks").labels(*labels, state).set(number)
        gauge(f"{_PROVISIONER}_max_instances").labels(*labels).set(gauges.max_instances)
        gauge(f"{_TASKSCALER}_max_tasks_per_instance").labels(*labels).set(gauges.max_tasks_per_instance)
        gauge(f"{_TASKSCALER}_max_use_count_per_instance").labels(*labels).set(gauges.max_use_count_per_instance)
        gauge(f"{_TASKSCALER}_desired_instances").labels(*labels).set(gauges.desired_instances)
        for name, group in gauges.groups.items():
            for reason, number in group.hindered.items():
                gauge(f"{_OWN}_hindered_instances").labels(*labels, name, reason).set(number)
            gauge(f"{_OWN}_group_well").labels(*labels, name).set(group.is_well)
            self._metrics.counter(f"{_OWN}_plugin_starts_total").labels(*labels, name).set(group.plugin_starts)
        if self._last is not None:
            self._spend(self._last, max(gauges.at - self._last.at, 0.0))
        self._last = gauges
        if self._machines is not None:
            self._machines.set_gauges(gauges)

    def _spend(self, last: "Gauges", seconds: float) -> None:
        """Count `seconds` (the time since the previous plan) for each machine that existed at that plan (`last`)."""
        for name, group in last.groups.items():
            for use, number in group.machines.items():
                self._count(f"{_OWN}_machine_seconds_total", name, use, count=number * seconds)

    def _begin(self, labels: tuple[str, ...], gauges: "Gauges") -> None:
        """Create all counters with known label values at zero, unless `labels` are those of the last call."""
        if labels == self._labels_seen:
            return
        self._labels_seen = labels
        from remuda.taskscaler.fleet.setup import FAILURES

        for name, operations in _OPERATIONS.items():
            for operation in operations:
                self._count(name, operation, count=0)
        self._count(f"{_PROVISIONER}_missed_updates_total", count=0)
        for name in _TIMES.values():
            self._metrics.histogram(name).labels(*labels)
        for group in gauges.groups:
            self._metrics.histogram(f"{_OWN}_boot_seconds").labels(*labels, group)
            for cause in FAILURES:
                self._count(f"{_OWN}_failed_creations_total", group, cause, count=0)
            for kind in Meddling:
                self._count(f"{_OWN}_lost_machines_total", group, kind, count=0)

    def count_instance_operation(self, operation: str, count: int = 1) -> None:
        self._count(f"{_PROVISIONER}_instance_operations_total", operation, count=count)

    def count_internal_operation(self, operation: str) -> None:
        self._count(f"{_PROVISIONER}_internal_operations_total", operation)

    def count_scale_operation(self, operation: str) -> None:
        self._count(f"{_TASKSCALER}_scale_operations_total", operation)

    def count_task_operation(self, operation: str) -> None:
        self._count(f"{_TASKSCALER}_task_operations_total", operation)
        if self._machines is not None and operation == "acquire":
            self._machines.count_used()

    def count_missed_update(self) -> None:
        self._count(f"{_PROVISIONER}_missed_updates_total")

    def observe(self, what: str, seconds: float) -> None:
        self._metrics.histogram(_TIMES[what]).labels(*self._labels).observe(seconds)
        if self._machines is not None:
            self._machines.measure(what, seconds)

    def observe_boot(self, group: str, seconds: float) -> None:
        self._metrics.histogram(f"{_OWN}_boot_seconds").labels(*self._labels, group).observe(seconds)

    def count_failed_creation(self, group: str, cause: str, seconds: float | None = None, count: int = 1) -> None:
        self._count(f"{_OWN}_failed_creations_total", group, cause, count=count)
        if self._machines is not None:
            self._machines.count_failed_creation(seconds, count)

    def count_loss(self, group: str, cause: str) -> None:
        self._count(f"{_OWN}_lost_machines_total", group, cause)

    def set_orphans(self, count: int) -> None:
        self._metrics.gauge(f"{_OWN}_orphans").labels(*self._labels).set(count)

    def count_decision(self, action: str, reason: str, count: int = 1) -> None:
        self._count("remuda_manager_scaling_decisions_total", action, reason, count=count)

    def clear(self) -> None:
        self._metrics.fleet_ended(self._runner())

    def count_starved(self) -> None:
        """Count a job request without a slot: as machines are busy, or as besides the limits allow no more machines."""
        which = "available" if self._last is None or self._last.may_grow else "iop"
        self.count_task_operation(f"reserve_{which}_capacity_failure")

    def _count(self, name: str, *more: str, count: float = 1) -> None:
        self._metrics.counter(name).labels(*self._labels, *more).inc(count)
