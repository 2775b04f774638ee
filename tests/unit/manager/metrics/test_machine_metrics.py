"""Metrics of Docker Machine's machines, with the names that gitlab-runner uses."""

import pytest
from msgspec.structs import replace

from remuda.manager.config.autoscaler import MachineConfig
from remuda.manager.config.values import ManagerConfig, RunnerConfig
from remuda.manager.metrics.machine_metrics import target_of
from remuda.manager.metrics.metrics import ManagerMetrics
from remuda.taskscaler.fleet.setup import Gauges, GroupGauges
from remuda.telemetry.metrics import render

OPTIONS = ("google-zone=us-east1-c", "google-project=ci", "google-machine-type=n1-standard-1", "google-preemptible")
ONE = RunnerConfig(
    name="one",
    token="glrt-abcdefghijk",
    executor="docker+machine",
    machine=MachineConfig(machine_driver="google", machine_options=OPTIONS),
)
TWO = replace(ONE, name="two", token="glrt-zyxwvutsrqp")
TARGET = 'target_machine_type="n1-standard-1",target_project="ci",target_region="us-east1",target_zone="us-east1-c"'


def gauges(machines: dict[str, int], *, stuck: int = 0, open_requests: int = 0) -> Gauges:
    return Gauges(
        instances={"requested": 1, "pending": 2},
        tasks={},
        max_instances=9,
        max_tasks_per_instance=1,
        max_use_count_per_instance=0,
        desired_instances=0,
        open_requests=open_requests,
        groups={
            "docker-machine": GroupGauges(machines=machines, hindered={}, stuck=stuck, is_well=True, plugin_starts=1)
        },
    )


def states(metrics: ManagerMetrics) -> dict[str, float]:
    prefix = 'gitlab_runner_autoscaling_machine_states{executor="docker+machine",state="'
    lines = [line for line in render(metrics.registry).decode().splitlines() if line.startswith(prefix)]
    assert all(TARGET in line for line in lines)
    return {line.removeprefix(prefix).partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_machine_states_of_runners_with_the_same_target_add_up() -> None:
    metrics = ManagerMetrics(list)
    config = ManagerConfig(runners=(ONE, TWO))
    metrics.apply_config(config, "s_1")
    first, second = metrics.add_scaler(lambda: ONE), metrics.add_scaler(lambda: TWO)
    machines = {"creating": 1, "idle": 5, "busy": 3, "unavailable": 1, "removing": 4}
    first.set_gauges(gauges(machines, stuck=1, open_requests=2))
    assert states(metrics) == {
        "acquired": 2,
        "creating": 4,
        "idle": 3,
        "used": 3,
        "removing": 4,
        "stuck-on-removing": 1,
    }
    second.set_gauges(gauges({"busy": 10}, stuck=1))
    assert states(metrics)["stuck-on-removing"] == 1
    assert states(metrics)["removing"] == 4
    assert states(metrics)["used"] == 13
    second.set_gauges(gauges({"busy": 9}))
    assert states(metrics)["used"] == 12
    metrics.apply_config(replace(config, runners=(ONE,)), "s_1")
    first.set_gauges(gauges({"busy": 1}))
    assert states(metrics)["used"] == 1


def test_actions_and_durations() -> None:
    metrics = ManagerMetrics(list)
    metrics.apply_config(ManagerConfig(runners=(ONE,)), "s_1")
    scaler_metrics = metrics.add_scaler(lambda: ONE)
    scaler_metrics.observe("instance_is_running", 60.0)
    scaler_metrics.observe("instance_deletion", 4.0)
    scaler_metrics.observe("instance_life_duration", 400.0)
    scaler_metrics.count_task_operation("acquire")
    scaler_metrics.count_task_operation("release")
    scaler_metrics.count_failed_creation("docker-machine", "lost", 12.0)
    scaler_metrics.count_failed_creation("docker-machine", "refused", None, 2)
    lines = render(metrics.registry).decode().splitlines()
    for action, count in (("created", 1), ("creation-failed", 3), ("used", 1), ("removed", 1)):
        labels = f'action="{action}",executor="docker+machine",{TARGET}'
        assert f"gitlab_runner_autoscaling_actions_total{{{labels}}} {count}.0" in lines
    for duration, end, count in (
        ("creation", "73.2421875", 1),
        ("creation", "46.875", 0),
        ("removal", "5.0", 1),
        ("failed_creation", "30.0", 1),
        ("stopping", "+Inf", 0),
    ):
        name = f"gitlab_runner_autoscaling_machine_{duration}_duration_seconds_bucket"
        assert f'{name}{{executor="docker+machine",le="{end}"}} {count}.0' in lines


def test_other_executors_have_no_machine_metrics() -> None:
    metrics = ManagerMetrics(list)
    scaler_metrics = metrics.add_scaler(lambda: replace(ONE, executor="instance"))
    scaler_metrics.observe("instance_is_running", 60.0)
    scaler_metrics.set_gauges(gauges({"busy": 1}))
    lines = render(metrics.registry).decode().splitlines()
    assert not any(line.startswith("gitlab_runner_autoscaling") for line in lines)


@pytest.mark.parametrize(
    ("driver", "options", "target"),
    [
        ("google", OPTIONS, ("us-east1-c", "us-east1", "ci", "n1-standard-1")),
        (
            "amazonec2",
            ("amazonec2-region=eu-west-1", "amazonec2-zone=b", "amazonec2-instance-type=m5.large"),
            ("eu-west-1b", "eu-west-1", "", "m5.large"),
        ),
        ("amazonec2", ("amazonec2-zone=b",), ("b", "", "", "")),
        ("azure", ("azure-location=westus", "azure-size=Standard_A2"), ("", "westus", "", "Standard_A2")),
        ("generic", ("generic-ip-address=192.0.2.1", "=", ""), ("", "", "", "")),
        ("", (), ("", "", "", "")),
    ],
)
def test_target_in_driver_options(driver: str, options: tuple[str, ...], target: tuple[str, str, str, str]) -> None:
    assert target_of(driver, options) == target
