"""Metrics of a manager with machines, read with a real Prometheus: names, types, labels and buckets for dashboards."""

import asyncio
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.servers.prometheus_server import PROGRAM, prometheus

from remuda.testing.lab import free_port
from remuda.testing.waiting import until

RUNNER = {"runner", "runner_name", "system_id"}
MINUTES = (1, 5, 10, 15, 30, 45, 60, 90, 120, 180)
LIVES = (60, 300, 600, 900, 1800, 3600, 21600, 43200, 86400)
STATES = {"requested", "pending", "creating", "running", "deleting", "suspending", "suspended", "resuming"}
TASKS = {"idle", "pending", "acquired", "reserved", "unavailable", "unhealthy"}
RESERVING = {"reserve", "unreserve", "reserve_iop_capacity_failure", "reserve_available_capacity_failure"}
FLEETING: dict[str, tuple[str, dict[str, set[str]]]] = {
    "fleeting_provisioner_max_instances": ("gauge", {}),
    "fleeting_provisioner_missed_updates_total": ("counter", {}),
    "fleeting_provisioner_instances": ("gauge", {"state": STATES}),
    "fleeting_provisioner_instance_operations_total": (
        "counter",
        {"operation": {"create", "delete", "suspend", "resume"}},
    ),
    "fleeting_provisioner_internal_operations_total": ("counter", {"operation": {"reconcile", "removal", "provision"}}),
    "fleeting_taskscaler_max_tasks_per_instance": ("gauge", {}),
    "fleeting_taskscaler_max_use_count_per_instance": ("gauge", {}),
    "fleeting_taskscaler_desired_instances": ("gauge", {}),
    "fleeting_taskscaler_scale_operations_total": ("counter", {"operation": {"up", "down"}}),
    "fleeting_taskscaler_task_operations_total": (
        "counter",
        {"operation": {"acquire", "acquire_timeout", "release", *RESERVING}},
    ),
    "fleeting_taskscaler_tasks": ("gauge", {"state": TASKS}),
}
FLEETING_TIMES = {
    "fleeting_provisioner_instance_creation_time_seconds": MINUTES,
    "fleeting_provisioner_instance_is_running_time_seconds": MINUTES,
    "fleeting_provisioner_instance_deletion_time_seconds": MINUTES,
    "fleeting_provisioner_instance_life_duration_seconds": LIVES,
    "fleeting_taskscaler_task_instance_readiness_time_seconds": MINUTES,
}
TARGET = {
    "executor": {"docker+machine"},
    "target_zone": {"europe-west1-b"},
    "target_region": {"europe-west1"},
    "target_project": {"ci"},
    "target_machine_type": {"n1-standard-2"},
}
MACHINES = {
    "gitlab_runner_autoscaling_actions_total": (
        "counter",
        {"action": {"created", "creation-failed", "used", "removed"}} | TARGET,
    ),
    "gitlab_runner_autoscaling_machine_states": (
        "gauge",
        {"state": {"acquired", "creating", "idle", "used", "removing", "stuck-on-removing"}} | TARGET,
    ),
}
SPANS = (1, 3, 5, 10, 30, 50, 60, 80, 90, 120)
MACHINE_TIMES = {
    "gitlab_runner_autoscaling_machine_creation_duration_seconds": tuple(30 * 1.25**power for power in range(10)),
    "gitlab_runner_autoscaling_machine_stopping_duration_seconds": SPANS,
    "gitlab_runner_autoscaling_machine_removal_duration_seconds": SPANS,
    "gitlab_runner_autoscaling_machine_failed_creation_duration_seconds": SPANS,
}
Sample = tuple[str, dict[str, str], float]
OPTIONS = '["google-zone=europe-west1-b", "google-project=ci", "google-machine-type=n1-standard-2"]'


class MachineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The plugin_config that a manager sends to the plugin for Docker Machine."""

    machine_name: str
    machine_driver: str
    machine_options: tuple[str, ...]
    machine_options_with_name: tuple[str, ...]


class Metrics:
    """One answer of `/metrics`, parsed."""

    def __init__(self, text: str) -> None:
        self.text = text
        families = list(text_string_to_metric_families(text))
        self.kinds = {family.name: family.type for family in families}
        self.samples: list[Sample] = [
            (sample.name, sample.labels, sample.value) for family in families for sample in family.samples
        ]

    def value(self, name: str, **labels: str) -> float:
        return sum(value for value_labels, value in self._samples_of(name) if labels.items() <= value_labels.items())

    def _samples_of(self, name: str) -> list[tuple[dict[str, str], float]]:
        return [(labels, value) for sample, labels, value in self.samples if sample == name]

    def compare(self, numbers: Mapping[str, tuple[str, dict[str, set[str]]]], constant: set[str]) -> None:
        for name, (kind, labels) in numbers.items():
            assert self.kinds[name.removesuffix("_total") if kind == "counter" else name] == kind, name
            samples = [sample_labels for sample_labels, _ in self._samples_of(name)]
            assert {frozenset(sample) for sample in samples} == {frozenset({*labels, *constant})}, name
            for label, values in labels.items():
                assert {sample[label] for sample in samples} == values, name

    def compare_times(self, times: Mapping[str, tuple[float, ...]], constant: set[str]) -> None:
        for name, buckets in times.items():
            assert self.kinds[name] == "histogram", name
            samples = [sample_labels for sample_labels, _ in self._samples_of(f"{name}_bucket")]
            assert {frozenset(sample) for sample in samples} == {frozenset({"le", *constant})}, name
            assert {sample["le"] for sample in samples} - {"+Inf"} == {str(float(end)) for end in buckets}, name


async def fetch_metrics(address: str) -> Metrics:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as response:
        return Metrics(await response.text())


async def fetch_metrics_until(address: str, condition: Callable[[Metrics], bool]) -> Metrics:
    """Fetch the metrics until the condition is true for them; return those."""
    while not condition(metrics := await fetch_metrics(address)):  # noqa: ASYNC110 - metrics can only be polled
        await asyncio.sleep(0.05)
    return metrics


def lint(text: str) -> None:
    result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


@pytest.mark.long
@pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed: make packages")
async def test_fleeting_metrics_have_the_names_and_labels_of_dashboards(site: Any, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    site.configure(
        top=f'listen_address = "{address}"',
        autoscaler="max_instances = 1\nmax_use_count = 9",
        policy='idle_time = "1s"',
    )
    async with site.manager():
        jobs = await site.jobs(await site.push("one: {script: [hostname]}\ntwo: {script: [hostname]}\n"))
        assert {job["status"] for job in jobs.values()} == {"success"}, jobs
        await until(lambda: not site.group.instances, seconds=60)
        life = "fleeting_provisioner_instance_life_duration_seconds_count"
        metrics = await fetch_metrics_until(address, lambda metrics: metrics.value(life) == site.group.created)
        async with prometheus(tmp_path / "prometheus", address) as peer:
            await peer.wait_for_metric("fleeting_taskscaler_tasks")
            assert await peer.value("sum(fleeting_taskscaler_task_operations_total{operation='acquire'})") == 2
            assert set(FLEETING) <= set(await peer.series())
    metrics.compare(FLEETING, RUNNER)
    metrics.compare_times(FLEETING_TIMES, RUNNER)
    lint(metrics.text)
    runner_labels = {"runner": site.token.removeprefix("glrt-")[:9], "runner_name": "bench"}
    assert metrics.value("fleeting_provisioner_max_instances", **runner_labels) == 1
    assert metrics.value("fleeting_taskscaler_max_use_count_per_instance", **runner_labels) == 9

    def operations(name: str) -> float:
        return metrics.value("fleeting_taskscaler_task_operations_total", operation=name)

    assert (operations("acquire"), operations("release"), operations("acquire_timeout")) == (2, 2, 0)
    # Up to three requests are open, and there is at most one machine for one job, so some reservations fail.
    assert operations("reserve") >= 2
    assert operations("reserve_iop_capacity_failure") >= 1
    prefix = "remuda_manager_scaling"
    assert metrics.value(f"{prefix}_machine_seconds_total", group="lab", use="busy") > 0
    assert metrics.value(f"{prefix}_machine_seconds_total", group="lab", use="idle") > 0
    assert metrics.value(f"{prefix}_boot_seconds_count", group="lab") == site.group.created
    assert metrics.value(f"{prefix}_slot_wait_seconds_count") == 2
    assert metrics.value(f"{prefix}_plugin_starts_total", group="lab") == 1
    assert metrics.value(f"{prefix}_group_well", group="lab") == 1
    assert {labels["reason"] for name, labels, _ in metrics.samples if name == f"{prefix}_hindered_instances"} >= {
        "max_instances",
        "quota",
        "throttled",
        "backing_off",
    }


@pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed: make packages")
async def test_docker_machine_metrics_have_the_names_of_gitlab_runner(site: Any) -> None:
    address = f"127.0.0.1:{free_port()}"

    def configure(idle: int) -> None:
        (site.folder / "config.toml").write_text(
            f'concurrent = 2\ncheck_interval = 0.2\nlisten_address = "{address}"\n'
            f'[[runners]]\nname = "bench"\nurl = "{site.cell.url}"\ntoken = "{site.token}"\nlimit = 2\n'
            'executor = "docker+machine"\n[runners.docker]\nimage = "busybox"\n'
            f'[runners.machine]\nIdleCount = {idle}\nIdleTime = 1\nMachineDriver = "google"\n'
            f'MachineName = "ci-%s"\nMachineOptions = {OPTIONS}\n'
        )

    site.group.config_type = MachineSettings
    configure(1)
    async with site.manager() as running:
        states = "gitlab_runner_autoscaling_machine_states"
        with_machine = await fetch_metrics_until(
            address, lambda metrics: metrics.value(states, state="idle") + metrics.value(states, state="acquired") == 1
        )
        configure(0)
        running.reload.set()
        actions = "gitlab_runner_autoscaling_actions_total"
        without_machine = await fetch_metrics_until(
            address, lambda metrics: metrics.value(actions, action="removed") == 1
        )
    for metrics in (with_machine, without_machine):
        metrics.compare(MACHINES, set())
        metrics.compare_times(MACHINE_TIMES, {"executor"})
        lint(metrics.text)
    assert without_machine.value(actions, action="created") == 1
    assert without_machine.value("gitlab_runner_autoscaling_machine_removal_duration_seconds_count") == 1
    assert without_machine.value("gitlab_runner_autoscaling_machine_creation_duration_seconds_count") == 1
