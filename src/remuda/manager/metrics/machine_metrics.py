"""Metrics of the machines of `docker+machine` runners, with gitlab-runner's names (`gitlab_runner_autoscaling_*`).

The labels say where a runner's machines are created (zone, region, project, machine type), read from the driver's
options; runners with the same values are summed up."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from remuda.manager.config.fleet_setup import DOCKER_MACHINE_EXECUTOR

if TYPE_CHECKING:
    from remuda.manager.config.values import RunnerConfig
    from remuda.manager.metrics.metrics import ManagerMetrics
    from remuda.taskscaler.fleet.setup import Gauges
    from remuda.telemetry.metrics import Gauge

_PREFIX = "gitlab_runner_autoscaling"
MACHINE_STATES = f"{_PREFIX}_machine_states"
_ACTIONS = ("created", "creation-failed", "used", "removed")
_TIMES = {
    "creation": f"{_PREFIX}_machine_creation_duration_seconds",
    "stopping": f"{_PREFIX}_machine_stopping_duration_seconds",
    "removal": f"{_PREFIX}_machine_removal_duration_seconds",
    "failed": f"{_PREFIX}_machine_failed_creation_duration_seconds",
}
_OPTIONS = {
    "google": ("google-zone", "", "google-project", "google-machine-type"),
    "amazonec2": ("amazonec2-zone", "amazonec2-region", "", "amazonec2-instance-type"),
    "azure": ("", "azure-location", "azure-resource-group", "azure-size"),
    "digitalocean": ("", "digitalocean-region", "", "digitalocean-size"),
}
"""By driver: the options with zone, region, project and machine type."""


def target_of(driver: str, options: Sequence[str]) -> tuple[str, str, str, str]:
    """Return zone, region, project and machine type from a driver's options; empty if they are not there."""
    values = dict(option.partition("=")[::2] for option in options)
    names = _OPTIONS.get(driver, ("", "", "", ""))
    zone, region, project, kind = (values.get(name, "") if name else "" for name in names)
    if driver == "google" and zone:
        region = zone.rpartition("-")[0]  # europe-west1-b
    elif driver == "amazonec2" and region and len(zone) == 1:
        zone = region + zone  # docker-machine has only the letter
    return zone, region, project, kind


class MachineCounts:
    def __init__(self, metrics: "ManagerMetrics", runner: "Callable[[], RunnerConfig]") -> None:
        self._metrics = metrics
        self._runner = runner
        for action in _ACTIONS:
            self._count(action, 0)
        for name in _TIMES.values():
            metrics.histogram(name).labels(DOCKER_MACHINE_EXECUTOR)

    def set_gauges(self, gauges: "Gauges") -> None:
        sums = Counter[str]()
        for group in gauges.groups.values():
            sums.update(group.machines)
            # A stuck machine that still has a job counts as used.
            sums["stuck"] += min(group.stuck, group.machines.get("removing", 0))
        # An open request for a job has an idle machine set aside, if there is one.
        acquired = min(gauges.open_requests, sums["idle"])
        self._metrics.machine_states[self._runner().short_token] = {
            (*self._target, state): number
            for state, number in (
                ("acquired", acquired),
                ("creating", gauges.instances["requested"] + gauges.instances["pending"] + sums["creating"]),
                ("idle", sums["idle"] - acquired),
                ("used", sums["busy"]),
                ("removing", sums["unavailable"] + sums["removing"] - sums["stuck"]),
                ("stuck-on-removing", sums["stuck"]),
            )
        }

    def count_used(self) -> None:
        self._count("used")

    def measure(self, what: str, seconds: float) -> None:
        """Record a duration that the scaler reports, if `what` is the creation or the removal of a machine."""
        if what == "instance_is_running":
            self._count("created")
            self._observe("creation", seconds)
        elif what == "instance_deletion":
            self._count("removed")
            self._observe("removal", seconds)

    def count_failed_creation(self, seconds: float | None, count: int) -> None:
        self._count("creation-failed", count)
        if seconds is not None:
            self._observe("failed", seconds)

    @property
    def _target(self) -> tuple[str, str, str, str]:
        machine = self._runner().machine
        return target_of(machine.machine_driver, machine.machine_options)

    def _count(self, action: str, count: int = 1) -> None:
        labels = DOCKER_MACHINE_EXECUTOR, action, *self._target
        self._metrics.counter(f"{_PREFIX}_actions_total").labels(*labels).inc(count)

    def _observe(self, what: str, seconds: float) -> None:
        self._metrics.histogram(_TIMES[what]).labels(DOCKER_MACHINE_EXECUTOR).observe(seconds)


def show_states(states: "Iterable[Mapping[tuple[str, ...], int]]", gauge: "Gauge") -> None:
    """Set the gauge to the sums over all runners; `states` has each runner's number of machines by labels."""
    sums: Counter[tuple[str, ...]] = Counter()
    for counts in states:
        sums.update(counts)
    gauge.parts.clear()
    for (*target, state), number in sums.items():
        gauge.labels(DOCKER_MACHINE_EXECUTOR, state, *target).set(number)
