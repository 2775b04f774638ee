"""Docker Machine's machines under gitlab-runner's names."""

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
PLACE = 'target_machine_type="n1-standard-1",target_project="ci",target_region="us-east1",target_zone="us-east1-c"'


def shown(machines: dict[str, int], *, stuck: int = 0, open_requests: int = 0) -> Gauges:
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
    found = [one for one in render(metrics.registry).decode().splitlines() if one.startswith(prefix)]
    assert all(PLACE in one for one in found)
    return {one.removeprefix(prefix).partition('"')[0]: float(one.rpartition(" ")[2]) for one in found}


def test_states_of_all_runners_of_a_place_add_up() -> None:
    metrics = ManagerMetrics(list)
    config = ManagerConfig(runners=(ONE, TWO))
    metrics.apply_config(config, "s_1")
    first, second = metrics.add_scaler(lambda: ONE), metrics.add_scaler(lambda: TWO)
    machines = {"creating": 1, "idle": 5, "busy": 3, "unavailable": 1, "removing": 4}
    first.set_gauges(shown(machines, stuck=1, open_requests=2))
    assert states(metrics) == {
        "acquired": 2,
        "creating": 4,
        "idle": 3,
        "used": 3,
        "removing": 4,
        "stuck-on-removing": 1,
    }
    second.set_gauges(shown({"busy": 10}, stuck=1))
    assert states(metrics)["stuck-on-removing"] == 1
    assert states(metrics)["removing"] == 4
    assert states(metrics)["used"] == 13
    second.set_gauges(shown({"busy": 9}))
    assert states(metrics)["used"] == 12
    metrics.apply_config(replace(config, runners=(ONE,)), "s_1")
    first.set_gauges(shown({"busy": 1}))
    assert states(metrics)["used"] == 1


def test_actions_and_times() -> None:
    metrics = ManagerMetrics(list)
    metrics.apply_config(ManagerConfig(runners=(ONE,)), "s_1")
    counts = metrics.add_scaler(lambda: ONE)
    counts.observe("instance_is_running", 60.0)
    counts.observe("instance_deletion", 4.0)
    counts.observe("instance_life_duration", 400.0)
    counts.count_task_operation("acquire")
    counts.count_task_operation("release")
    counts.count_failed_creation("docker-machine", "lost", 12.0)
    counts.count_failed_creation("docker-machine", "refused", None, 2)
    said = render(metrics.registry).decode().splitlines()
    for action, count in (("created", 1), ("creation-failed", 3), ("used", 1), ("removed", 1)):
        labels = f'action="{action}",executor="docker+machine",{PLACE}'
        assert f"gitlab_runner_autoscaling_actions_total{{{labels}}} {count}.0" in said
    for what, end, count in (
        ("creation", "73.2421875", 1),
        ("creation", "46.875", 0),
        ("removal", "5.0", 1),
        ("failed_creation", "30.0", 1),
        ("stopping", "+Inf", 0),
    ):
        name = f"gitlab_runner_autoscaling_machine_{what}_duration_seconds_bucket"
        assert f'{name}{{executor="docker+machine",le="{end}"}} {count}.0' in said


def test_other_executors_have_none() -> None:
    metrics = ManagerMetrics(list)
    counts = metrics.add_scaler(lambda: replace(ONE, executor="instance"))
    counts.observe("instance_is_running", 60.0)
    counts.set_gauges(shown({"busy": 1}))
    said = render(metrics.registry).decode().splitlines()
    assert not any(one.startswith("gitlab_runner_autoscaling") for one in said)


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
def test_the_place_is_read_off_the_drivers_options(
    driver: str, options: tuple[str, ...], target: tuple[str, str, str, str]
) -> None:
    assert target_of(driver, options) == target
