"""Metrics of scalers, with the names that gitlab-runner uses."""

import gc

from msgspec.structs import replace

from remuda.manager.config.values import ManagerConfig, RunnerConfig
from remuda.manager.metrics.metric_table import SERVED
from remuda.manager.metrics.metrics import ManagerMetrics
from remuda.manager.metrics.scaling_metrics import SCALING_GAUGES
from remuda.taskscaler.fleet.setup import Gauges, GroupGauges, ScalerMetrics
from remuda.telemetry.metrics import render

RUNNER = RunnerConfig(name="one", token="glrt-abcdefghijk")
GAUGES = Gauges(
    instances={"running": 3, "creating": 1},
    tasks={"idle": 2, "acquired": 4},
    max_instances=9,
    max_tasks_per_instance=2,
    max_use_count_per_instance=5,
    desired_instances=-1,
    groups={
        "lab": GroupGauges(
            machines={"idle": 2, "busy": 1},
            hindered={"quota": 4, "throttled": 0},
            stuck=0,
            is_well=True,
            plugin_starts=3,
        )
    },
)


def rendered_lines(metrics: ManagerMetrics) -> list[str]:
    return render(metrics.registry).decode().splitlines()


def line(name: str, value: float, **more: str) -> str:
    """Return the expected line of a sample with the labels of RUNNER."""
    labels = {"runner": "abcdefghi", "runner_name": "one", "system_id": "s_1"} | more
    pairs = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"{name}{{{pairs}}} {value}"


def test_all_metrics_have_the_labels_of_their_runner() -> None:
    metrics = ManagerMetrics(list)
    metrics.apply_config(ManagerConfig(runners=(RUNNER,)), "s_1")
    scaler_metrics: ScalerMetrics = metrics.add_scaler(lambda: RUNNER)
    scaler_metrics.set_gauges(GAUGES)
    scaler_metrics.count_instance_operation("create", 2)
    scaler_metrics.count_internal_operation("reconcile")
    scaler_metrics.count_scale_operation("up")
    scaler_metrics.count_task_operation("acquire")
    scaler_metrics.count_missed_update()
    for duration in (
        "instance_creation",
        "instance_is_running",
        "instance_deletion",
        "instance_life_duration",
        "task_instance_readiness",
    ):
        scaler_metrics.observe(duration, 7.0)
    scaler_metrics.count_decision("create", "waiting_jobs", 2)
    scaler_metrics.observe_boot("lab", 200.0)
    scaler_metrics.count_failed_creation("lab", "refused", 3.0, 2)
    scaler_metrics.count_loss("lab", "replaced")
    scaler_metrics.set_orphans(5)
    scaler_metrics.observe("slot_wait", 0.5)
    scaler_metrics.set_gauges(replace(GAUGES, at=10.0))
    lines = rendered_lines(metrics)
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
        line("remuda_manager_scaling_hindered_instances", 4.0, group="lab", reason="quota"),
        line("remuda_manager_scaling_group_well", 1.0, group="lab"),
        line("remuda_manager_scaling_machine_seconds_total", 20.0, group="lab", use="idle"),
        line("remuda_manager_scaling_machine_seconds_total", 10.0, group="lab", use="busy"),
        line("remuda_manager_scaling_boot_seconds_bucket", 1.0, group="lab", le="300.0"),
        line("remuda_manager_scaling_slot_wait_seconds_count", 1.0),
        line("remuda_manager_scaling_failed_creations_total", 2.0, group="lab", cause="refused"),
        line("remuda_manager_scaling_failed_creations_total", 0.0, group="lab", cause="stuck"),
        line("remuda_manager_scaling_lost_machines_total", 1.0, group="lab", cause="replaced"),
        line("remuda_manager_scaling_plugin_starts_total", 3.0, group="lab"),
        line("remuda_manager_scaling_orphans", 5.0),
        line("fleeting_taskscaler_task_operations_total", 0.0, operation="reserve"),
    ):
        assert expected in lines
    scaling_names = [name for name in SERVED if name.startswith(("fleeting_", "remuda_manager_scaling_"))]
    assert all(any(line.startswith(name) and "{" in line for line in lines) for name in scaling_names)


def test_a_new_token_replaces_the_labels_of_gauges() -> None:
    metrics, runner = ManagerMetrics(list), RUNNER
    scaler_metrics = metrics.add_scaler(lambda: runner)
    scaler_metrics.set_gauges(GAUGES)
    runner = replace(RUNNER, token="glrt-zyxwvutsrqp")
    metrics.apply_config(ManagerConfig(runners=(runner,)), "s_1")
    scaler_metrics.set_gauges(GAUGES)
    samples = [line for line in rendered_lines(metrics) if line.startswith("fleeting_provisioner_max_instances{")]
    assert len(samples) == 1
    assert 'runner="zyxwvutsr"' in samples[0]


def test_gauges_stay_when_the_configuration_is_reloaded() -> None:
    """Gauges are set again only by the next plan, which may be a minute later."""
    metrics, scaled = ManagerMetrics(list), replace(RUNNER, executor="instance")
    config = ManagerConfig(runners=(scaled,))
    metrics.apply_config(config, "s_1")
    metrics.add_scaler(lambda: scaled).set_gauges(GAUGES)
    metrics.apply_config(config, "s_1")
    assert line("fleeting_provisioner_max_instances", 9.0) in rendered_lines(metrics)
    assert line("remuda_manager_scaling_group_well", 1.0, group="lab") in rendered_lines(metrics)
    metrics.apply_config(ManagerConfig(runners=(replace(scaled, executor="shell"),)), "s_1")
    assert not any(line.startswith("fleeting_provisioner_max_instances{") for line in rendered_lines(metrics))


def test_job_requests_of_scaled_runners_are_counted_as_reservations() -> None:
    metrics = ManagerMetrics(list)
    metrics.apply_config(ManagerConfig(runners=(RUNNER,)), "s_1")
    scaler_metrics = metrics.add_scaler(lambda: RUNNER)
    events = metrics.poller_events()
    events.opened(RUNNER, 1)
    events.opened(RUNNER, 1)
    events.opened(RUNNER, -1)
    events.emptied(RUNNER)
    events.opened(replace(RUNNER, token="glrt-zyxwvutsrqp"), 1)
    scaler_metrics.set_gauges(GAUGES)
    events.starved(RUNNER, True)
    events.starved(RUNNER, False)  # `concurrent` or `limit` leave no slot, so machines are not involved
    scaler_metrics.set_gauges(replace(GAUGES, may_grow=False))
    events.starved(RUNNER, True)
    events.starved(RUNNER, True)
    lines = rendered_lines(metrics)
    for operation, count in (
        ("reserve", 2.0),
        ("unreserve", 1.0),
        ("reserve_available_capacity_failure", 1.0),
        ("reserve_iop_capacity_failure", 2.0),
    ):
        assert line("fleeting_taskscaler_task_operations_total", count, operation=operation) in lines


def test_requests_of_a_runner_without_a_scaler_are_not_counted() -> None:
    metrics = ManagerMetrics(list)
    scaler_metrics = metrics.add_scaler(lambda: RUNNER)
    del scaler_metrics
    gc.collect()
    metrics.poller_events().opened(RUNNER, 1)
    assert not any(line.startswith("fleeting_taskscaler_task_operations_total{") for line in rendered_lines(metrics))


def test_machines_of_a_removed_runner_are_shown_until_its_fleet_has_ended() -> None:
    runner = replace(RUNNER, executor="docker+machine")
    metrics = ManagerMetrics(list)
    metrics.apply_config(ManagerConfig(runners=(runner,)), "s_1")
    scaler_metrics = metrics.add_scaler(lambda: runner)
    metrics.apply_config(ManagerConfig(), "s_1")
    gauges = replace(GAUGES, instances={"requested": 0, "pending": 0, "running": 3})
    scaler_metrics.set_gauges(gauges)  # the fleet waits for its last jobs and still plans
    scaler_metrics.set_orphans(1)
    running = line("fleeting_provisioner_instances", 3.0, state="running")
    states = "gitlab_runner_autoscaling_machine_states{"
    assert running in rendered_lines(metrics)
    assert any(line.startswith(states) for line in rendered_lines(metrics))
    scaler_metrics.clear()
    lines = rendered_lines(metrics)
    assert [line for name in SCALING_GAUGES for line in lines if line.startswith(f"{name}{{")] == []
    assert not any(line.startswith(states) for line in lines)
