"""What scalers count, under upstream's names."""

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


def lines(metrics: ManagerMetrics) -> list[str]:
    return render(metrics.registry).decode().splitlines()


def line(name: str, value: float, **more: str) -> str:
    """Labels are sorted."""
    labels = {"runner": "abcdefghi", "runner_name": "one", "system_id": "s_1"} | more
    shown = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"{name}{{{shown}}} {value}"


def test_everything_has_the_runners_labels() -> None:
    metrics = ManagerMetrics(list)
    metrics.apply_config(ManagerConfig(runners=(RUNNER,)), "s_1")
    told: ScalerMetrics = metrics.add_scaler(lambda: RUNNER)
    told.set_gauges(GAUGES)
    told.count_instance_operation("create", 2)
    told.count_internal_operation("reconcile")
    told.count_scale_operation("up")
    told.count_task_operation("acquire")
    told.count_missed_update()
    for what in (
        "instance_creation",
        "instance_is_running",
        "instance_deletion",
        "instance_life_duration",
        "task_instance_readiness",
    ):
        told.observe(what, 7.0)
    told.count_decision("create", "waiting_jobs", 2)
    told.observe_boot("lab", 200.0)
    told.count_failed_creation("lab", "refused", 3.0, 2)
    told.count_loss("lab", "replaced")
    told.set_orphans(5)
    told.observe("slot_wait", 0.5)
    told.set_gauges(replace(GAUGES, at=10.0))
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
        assert expected in said
    of_machines = [name for name in SERVED if name.startswith(("fleeting_", "remuda_manager_scaling_"))]
    assert all(any(one.startswith(name) and "{" in one for one in said) for name in of_machines)


def test_a_new_token_is_other_labels_and_leaves_no_old_gauges() -> None:
    metrics, now = ManagerMetrics(list), RUNNER
    told = metrics.add_scaler(lambda: now)
    told.set_gauges(GAUGES)
    now = replace(RUNNER, token="glrt-zyxwvutsrqp")
    metrics.apply_config(ManagerConfig(runners=(now,)), "s_1")
    told.set_gauges(GAUGES)
    shown = [line for line in lines(metrics) if line.startswith("fleeting_provisioner_max_instances{")]
    assert len(shown) == 1
    assert 'runner="zyxwvutsr"' in shown[0]


def test_a_configuration_that_is_read_again_leaves_no_gap() -> None:
    """The next plan of a runner may be a minute away."""
    metrics, scaled = ManagerMetrics(list), replace(RUNNER, executor="instance")
    config = ManagerConfig(runners=(scaled,))
    metrics.apply_config(config, "s_1")
    metrics.add_scaler(lambda: scaled).set_gauges(GAUGES)
    metrics.apply_config(config, "s_1")
    assert line("fleeting_provisioner_max_instances", 9.0) in lines(metrics)
    assert line("remuda_manager_scaling_group_well", 1.0, group="lab") in lines(metrics)
    metrics.apply_config(ManagerConfig(runners=(replace(scaled, executor="shell"),)), "s_1")
    assert not any(one.startswith("fleeting_provisioner_max_instances{") for one in lines(metrics))


def test_requests_for_jobs_are_reservations_where_there_are_machines() -> None:
    metrics = ManagerMetrics(list)
    metrics.apply_config(ManagerConfig(runners=(RUNNER,)), "s_1")
    counts = metrics.add_scaler(lambda: RUNNER)
    asking = metrics.poller_events()
    asking.opened(RUNNER, 1)
    asking.opened(RUNNER, 1)
    asking.opened(RUNNER, -1)
    asking.emptied(RUNNER)
    asking.opened(replace(RUNNER, token="glrt-zyxwvutsrqp"), 1)
    counts.set_gauges(GAUGES)
    asking.starved(RUNNER, True)
    asking.starved(RUNNER, False)  # `concurrent` or `limit` leave no slot: the machines are not asked
    counts.set_gauges(replace(GAUGES, may_grow=False))
    asking.starved(RUNNER, True)
    asking.starved(RUNNER, True)
    said = lines(metrics)
    for operation, count in (
        ("reserve", 2.0),
        ("unreserve", 1.0),
        ("reserve_available_capacity_failure", 1.0),
        ("reserve_iop_capacity_failure", 2.0),
    ):
        assert line("fleeting_taskscaler_task_operations_total", count, operation=operation) in said


def test_a_runner_whose_scaler_is_gone_is_not_counted() -> None:
    metrics = ManagerMetrics(list)
    counts = metrics.add_scaler(lambda: RUNNER)
    del counts
    gc.collect()
    metrics.poller_events().opened(RUNNER, 1)
    assert not any(one.startswith("fleeting_taskscaler_task_operations_total{") for one in lines(metrics))


def test_machines_of_a_runner_that_is_taken_out_are_shown_until_its_fleet_has_ended() -> None:
    runner = replace(RUNNER, executor="docker+machine")
    metrics = ManagerMetrics(list)
    metrics.apply_config(ManagerConfig(runners=(runner,)), "s_1")
    counts = metrics.add_scaler(lambda: runner)
    metrics.apply_config(ManagerConfig(), "s_1")
    gauges = replace(GAUGES, instances={"requested": 0, "pending": 0, "running": 3})
    counts.set_gauges(gauges)  # it waits for its last jobs, and plans
    counts.set_orphans(1)
    shown = line("fleeting_provisioner_instances", 3.0, state="running")
    states = "gitlab_runner_autoscaling_machine_states{"
    assert shown in lines(metrics)
    assert any(one.startswith(states) for one in lines(metrics))
    counts.clear()
    said = lines(metrics)
    assert [one for name in SCALING_GAUGES for one in said if one.startswith(f"{name}{{")] == []
    assert not any(one.startswith(states) for one in said)
