"""What scalers count, under the names of upstream's metrics: `fleeting_provisioner_*` and `fleeting_taskscaler_*`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.manager.config import RunnerConfig
    from remuda.manager.metrics import ManagerMetrics
    from remuda.taskscaler.loop import Gauges

_PROVISIONER, _TASKSCALER = "fleeting_provisioner", "fleeting_taskscaler"
SCALING_GAUGES = (
    f"{_PROVISIONER}_instances",
    f"{_PROVISIONER}_max_instances",
    f"{_TASKSCALER}_tasks",
    f"{_TASKSCALER}_max_tasks_per_instance",
    f"{_TASKSCALER}_max_use_count_per_instance",
    f"{_TASKSCALER}_desired_instances",
)
_TIMES = {
    "instance_creation": f"{_PROVISIONER}_instance_creation_time_seconds",
    "instance_is_running": f"{_PROVISIONER}_instance_is_running_time_seconds",
    "instance_deletion": f"{_PROVISIONER}_instance_deletion_time_seconds",
    "instance_life_duration": f"{_PROVISIONER}_instance_life_duration_seconds",
    "task_instance_readiness": f"{_TASKSCALER}_task_instance_readiness_time_seconds",
}


class ScalingCounts:
    """Counts for one scaler: the taskscaler's `Told`."""

    def __init__(self, metrics: "ManagerMetrics", runner: Callable[[], "RunnerConfig"]) -> None:
        """`runner` tells the configuration as it is now: with a new token the labels are other ones."""
        self._metrics = metrics
        self._runner = runner

    @property
    def _labels(self) -> tuple[str, str, str]:
        return self._metrics.labels(self._runner())

    def gauges(self, gauges: "Gauges") -> None:
        labels, gauge = self._labels, self._metrics.gauge
        for state, number in gauges.instances.items():
            gauge(f"{_PROVISIONER}_instances").labels(*labels, state).set(number)
        for state, number in gauges.tasks.items():
            gauge(f"{_TASKSCALER}_tasks").labels(*labels, state).set(number)
        gauge(f"{_PROVISIONER}_max_instances").labels(*labels).set(gauges.max_instances)
        gauge(f"{_TASKSCALER}_max_tasks_per_instance").labels(*labels).set(gauges.max_tasks_per_instance)
        gauge(f"{_TASKSCALER}_max_use_count_per_instance").labels(*labels).set(gauges.max_use_count_per_instance)
        gauge(f"{_TASKSCALER}_desired_instances").labels(*labels).set(gauges.desired_instances)

    def instance_operation(self, operation: str, count: int = 1) -> None:
        self._count(f"{_PROVISIONER}_instance_operations_total", operation, count=count)

    def internal_operation(self, operation: str) -> None:
        self._count(f"{_PROVISIONER}_internal_operations_total", operation)

    def scale_operation(self, operation: str) -> None:
        self._count(f"{_TASKSCALER}_scale_operations_total", operation)

    def task_operation(self, operation: str) -> None:
        self._count(f"{_TASKSCALER}_task_operations_total", operation)

    def missed_update(self) -> None:
        self._count(f"{_PROVISIONER}_missed_updates_total")

    def took(self, what: str, seconds: float) -> None:
        self._metrics.histogram(_TIMES[what]).labels(*self._labels).observe(seconds)

    def decided(self, action: str, reason: str, count: int = 1) -> None:
        self._count("remuda_manager_scaling_decisions_total", action, reason, count=count)

    def _count(self, name: str, *more: str, count: int = 1) -> None:
        self._metrics.counter(name).labels(*self._labels, *more).inc(count)
