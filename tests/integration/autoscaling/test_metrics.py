"""What a manager with machines serves, as a real Prometheus sees it, against a table of what dashboards want."""

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
    """What a manager tells the plugin for Docker Machine."""

    machine_name: str
    machine_driver: str
    machine_options: tuple[str, ...]
    machine_options_with_name: tuple[str, ...]


class Seen:
    """What `/metrics` has said."""

    def __init__(self, text: str) -> None:
        self.text = text
        families = list(text_string_to_metric_families(text))
        self.kinds = {one.name: one.type for one in families}
        self.samples: list[Sample] = [(some.name, some.labels, some.value) for one in families for some in one.samples]

    def value(self, name: str, **labels: str) -> float:
        found = [value for one, of, value in self.samples if one == name and labels.items() <= of.items()]
        return sum(found)

    def compare(self, numbers: Mapping[str, tuple[str, dict[str, set[str]]]], constant: set[str]) -> None:
        for name, (kind, labels) in numbers.items():
            assert self.kinds[name.removesuffix("_total") if kind == "counter" else name] == kind, name
            found = [of for one, of, _ in self.samples if one == name]
            assert {frozenset(of) for of in found} == {frozenset({*labels, *constant})}, name
            for label, values in labels.items():
                assert {of[label] for of in found} == values, name

    def compare_times(self, times: Mapping[str, tuple[float, ...]], constant: set[str]) -> None:
        for name, buckets in times.items():
            assert self.kinds[name] == "histogram", name
            found = [of for one, of, _ in self.samples if one == f"{name}_bucket"]
            assert {frozenset(of) for of in found} == {frozenset({"le", *constant})}, name
            assert {of["le"] for of in found} - {"+Inf"} == {str(float(end)) for end in buckets}, name


async def look(address: str) -> Seen:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
        return Seen(await answer.text())


async def look_until(address: str, is_so: Callable[[Seen], bool]) -> Seen:
    """The first look of which that is so."""
    while not is_so(seen := await look(address)):  # noqa: ASYNC110 - another process would see no more than this
        await asyncio.sleep(0.05)
    return seen


def lint(text: str) -> None:
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.long
@pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed: make packages")
async def test_machines_are_counted_as_dashboards_want_it(site: Any, tmp_path: Path) -> None:
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
        seen = await look_until(address, lambda seen: seen.value(life) == site.group.made)
        async with prometheus(tmp_path / "prometheus", address) as peer:
            await peer.until_known("fleeting_taskscaler_tasks")
            assert await peer.value("sum(fleeting_taskscaler_task_operations_total{operation='acquire'})") == 2
            assert set(FLEETING) <= set(await peer.series())
    seen.compare(FLEETING, RUNNER)
    seen.compare_times(FLEETING_TIMES, RUNNER)
    lint(seen.text)
    named = {"runner": site.token.removeprefix("glrt-")[:9], "runner_name": "bench"}
    assert seen.value("fleeting_provisioner_max_instances", **named) == 1
    assert seen.value("fleeting_taskscaler_max_use_count_per_instance", **named) == 9

    def operations(name: str) -> float:
        return seen.value("fleeting_taskscaler_task_operations_total", operation=name)

    assert (operations("acquire"), operations("release"), operations("acquire_timeout")) == (2, 2, 0)
    # Three requests may be open, and one machine for one job be there: the others find no room, and none to come.
    assert operations("reserve") >= 2
    assert operations("reserve_iop_capacity_failure") >= 1
    own = "remuda_manager_scaling"
    assert seen.value(f"{own}_machine_seconds_total", group="lab", use="busy") > 0
    assert seen.value(f"{own}_machine_seconds_total", group="lab", use="idle") > 0
    assert seen.value(f"{own}_boot_seconds_count", group="lab") == site.group.made
    assert seen.value(f"{own}_slot_wait_seconds_count") == 2
    assert seen.value(f"{own}_plugin_starts_total", group="lab") == 1
    assert seen.value(f"{own}_group_well", group="lab") == 1
    assert {of["reason"] for name, of, _ in seen.samples if name == f"{own}_hindered_instances"} >= {
        "max_instances",
        "quota",
        "throttled",
        "backing_off",
    }


@pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed: make packages")
async def test_docker_machines_have_gitlab_runners_own_names_too(site: Any) -> None:
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
        there = await look_until(
            address, lambda seen: seen.value(states, state="idle") + seen.value(states, state="acquired") == 1
        )
        configure(0)
        running.reload.set()
        actions = "gitlab_runner_autoscaling_actions_total"
        gone = await look_until(address, lambda seen: seen.value(actions, action="removed") == 1)
    for seen in (there, gone):
        seen.compare(MACHINES, set())
        seen.compare_times(MACHINE_TIMES, {"executor"})
        lint(seen.text)
    assert gone.value(actions, action="created") == 1
    assert gone.value("gitlab_runner_autoscaling_machine_removal_duration_seconds_count") == 1
    assert gone.value("gitlab_runner_autoscaling_machine_creation_duration_seconds_count") == 1
