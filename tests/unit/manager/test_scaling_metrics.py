"""What scalers count, under upstream's names."""

from msgspec.structs import replace

from remuda.manager.config import ManagerConfig, RunnerConfig
from remuda.manager.metric_table import SERVED
from remuda.manager.metrics import ManagerMetrics
from remuda.taskscaler.loop import Gauges, Told
from remuda.telemetry.metrics import render

RUNNER = RunnerConfig(name="one", token="glrt-abcdefghijk")
GAUGES = Gauges(
    instances={"running": 3, "creating": 1},
    tasks={"idle": 2, "acquired": 4},
    max_instances=9,
    max_tasks_per_instance=2,
    max_use_count_per_instance=5,
    desired_instances=-1,
)


def lines(metrics: ManagerMetrics) -> list[str]:
    return render(metrics.registry).decode().splitlines()


def line(name: str, value: float, **more: str) -> str:
    """Labels are sorted."""
    labels = {"runner": "abcdefghi", "runner_name": "one", "system_id": "s_1"} | more
    shown = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"{name}{{{shown}}} {value}"


def test_everything_has_the_runners_labels() -> None:
    metrics = ManagerMetrics(list)
    metrics.configured(ManagerConfig(runners=(RUNNER,)), "s_1")
    told: Told = metrics.of_scaling(lambda: RUNNER)
    told.gauges(GAUGES)
    told.instance_operation("create", 2)
    told.internal_operation("reconcile")
    told.scale_operation("up")
    told.task_operation("acquire")
    told.missed_update()
    for what in (
        "instance_creation",
        "instance_is_running",
        "instance_deletion",
        "instance_life_duration",
        "task_instance_readiness",
    ):
        told.took(what, 7.0)
    told.decided("create", "waiting_jobs", 2)
    said = lines(metrics)
    for expected in (
        line("fleeting_provisioner_instances", 3.0, state="running"),
        line("fleeting_taskscaler_tasks", 4.0, state="acquired"),
        line("fleeting_provisioner_max_instances", 9.0),
        line("fleeting_taskscaler_max_tasks_per_instance", 2.0),
        line("fleeting_taskscaler_max_use_count_per_instance", 5.0),
        line("fleeting_taskscaler_desired_instances", -1.0),
        line("fleeting_provisioner_instance_operations_total", 2.0, operation="create"),
        line("fleeting_provisioner_internal_operations_total", 1.0, operation="reconcile"),
        line("fleeting_taskscaler_scale_operations_total", 1.0, operation="up"),
        line("fleeting_taskscaler_task_operations_total", 1.0, operation="acquire"),
        line("fleeting_provisioner_missed_updates_total", 1.0),
        line("fleeting_provisioner_instance_creation_time_seconds_bucket", 1.0, le="10.0"),
        line("fleeting_provisioner_instance_is_running_time_seconds_count", 1.0),
        line("fleeting_provisioner_instance_deletion_time_seconds_count", 1.0),
        line("fleeting_provisioner_instance_life_duration_seconds_bucket", 1.0, le="60.0"),
        line("fleeting_taskscaler_task_instance_readiness_time_seconds_count", 1.0),
        line("remuda_manager_scaling_decisions_total", 2.0, action="create", reason="waiting_jobs"),
    ):
        assert expected in said
    of_machines = [name for name in SERVED if name.startswith(("fleeting_", "remuda_manager_scaling_"))]
    assert all(any(one.startswith(name) and "{" in one for one in said) for name in of_machines)


def test_a_new_token_is_other_labels_and_leaves_no_old_gauges() -> None:
    metrics, now = ManagerMetrics(list), RUNNER
    told = metrics.of_scaling(lambda: now)
    told.gauges(GAUGES)
    now = replace(RUNNER, token="glrt-zyxwvutsrqp")
    metrics.configured(ManagerConfig(runners=(now,)), "s_1")
    told.gauges(GAUGES)
    shown = [line for line in lines(metrics) if line.startswith("fleeting_provisioner_max_instances{")]
    assert len(shown) == 1
    assert 'runner="zyxwvutsr"' in shown[0]
