"""The manager's metrics and the pages of the reference that list them."""

import re
from pathlib import Path

import pytest

from remuda.manager.config.values import ManagerConfig, RunnerConfig
from remuda.manager.core.open_requests import RequestLimit
from remuda.manager.core.poll_pace import Health
from remuda.manager.metrics.metric_table import FAMILIES, Family
from remuda.manager.metrics.metrics import Load, ManagerMetrics, RunnerLabels
from remuda.telemetry.logs import logger
from remuda.telemetry.metrics import render
from remuda.wire.agent_client import JobUse
from remuda.wire.runner_api import JobInfo

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"
NAMES = PAGE.parent / "generated" / "metrics.md"
ONE = RunnerConfig(name="one", url="http://cell", token="glrt-abcdefghijkl", executor="shell", limit=3)
R = 'runner="abcdefghi",runner_name="one",system_id="s_1"'


@pytest.fixture
def metrics() -> ManagerMetrics:
    metrics = ManagerMetrics(list)
    metrics.apply_config(ManagerConfig(concurrent=4, runners=(ONE,)), "s_1")
    return metrics


def rendered_lines(metrics: ManagerMetrics) -> list[str]:
    return render(metrics.registry).decode().splitlines()


def entry(family: Family) -> str:
    """Return the text of a metric in the generated list."""
    if family.missing:
        return f"Not served: {family.missing}."
    labels = f" Labels: {', '.join(f'`{label}`' for label in family.labels)}." if family.labels else ""
    return f"{family.kind}. {family.text}{labels}"


def test_the_generated_list_has_every_metric() -> None:
    _, _, of_manager = NAMES.read_text().partition("\n## Manager\n")
    entries = re.findall(r"^`(\w+)`\n: {3}(.*?)(?=\n\n|\Z)", of_manager, re.MULTILINE | re.DOTALL)
    listed = sorted((name, " ".join(text.split())) for name, text in entries)
    assert listed == sorted((family.name, entry(family)) for family in FAMILIES)


def test_the_page_names_only_metrics_that_are_served() -> None:
    served = {family.name for family in FAMILIES if not family.missing}
    named = set(re.findall(r"\b(?:gitlab_runner|fleeting|remuda_manager)_\w*[a-z]\b(?!\*)", PAGE.read_text()))
    assert {name for name in named if name not in served and name.removesuffix("_bucket") not in served} == set()


def test_names_are_unique_and_only_counters_end_with_total() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        assert bool(family.buckets) == (family.kind == "histogram" and not family.missing), family.name


def test_metrics_of_a_new_manager_start_with_zero(metrics: ManagerMetrics) -> None:
    for line in (
        "gitlab_runner_concurrent 4.0",
        f"gitlab_runner_limit{{{R}}} 3.0",
        f"gitlab_runner_jobs_total{{{R}}} 0.0",
        f"gitlab_runner_worker_health_check_failures_total{{{R}}} 0.0",
        'gitlab_runner_process_state_info{state="starting"} 1.0',
        'gitlab_runner_process_state_info{state="running"} 0.0',
        'gitlab_runner_worker_slot_operations_total{operation="started"} 4.0',
    ):
        assert line in rendered_lines(metrics), line


def test_a_new_configuration_changes_limits_and_counts_slots(metrics: ManagerMetrics) -> None:
    metrics.apply_config(ManagerConfig(concurrent=1, runners=()), "s_1")
    assert "gitlab_runner_worker_slots_number 1.0" in rendered_lines(metrics)
    assert 'gitlab_runner_worker_slot_operations_total{operation="stopped"} 3.0' in rendered_lines(metrics)
    assert not any(line.startswith("gitlab_runner_limit{") for line in rendered_lines(metrics))


def test_events_of_pollers_are_counted(metrics: ManagerMetrics) -> None:
    events = metrics.poller_events()
    events.opened(ONE, 1)
    events.limited(ONE, RequestLimit(hard=9, adaptive=2.2))
    events.exceeded(ONE)
    events.starved(ONE, False)
    events.starved(ONE, True)
    events.failed(ONE, Health.REFUSED)
    events.failed(ONE, Health.TROUBLED)
    labels = 'runner="abcdefghi",system_id="s_1"'
    for line in (
        f"gitlab_runner_request_concurrency{{{labels}}} 1.0",
        f"gitlab_runner_request_concurrency_hard_limit{{{labels}}} 9.0",
        f"gitlab_runner_request_concurrency_adaptive_limit{{{labels}}} 2.2",
        f"gitlab_runner_request_concurrency_used_limit{{{labels}}} 2.0",
        f"gitlab_runner_request_concurrency_exceeded_total{{{labels}}} 1.0",
        f"gitlab_runner_worker_feeds_total{{{R}}} 1.0",
        f"gitlab_runner_worker_feed_failures_total{{{R}}} 2.0",
        f'gitlab_runner_worker_processing_failures_total{{failure_type="no_free_executor",{R}}} 1.0',
        f'gitlab_runner_worker_processing_failures_total{{failure_type="other",{R}}} 1.0',
        f"gitlab_runner_worker_health_check_failures_total{{{R}}} 1.0",
    ):
        assert line in rendered_lines(metrics), line


def test_received_and_finished_jobs_are_counted(metrics: ManagerMetrics) -> None:
    job_info = JobInfo(time_in_queue_seconds=5, queue_size=7, queue_depth=2)
    metrics.count_received(ONE, job_info, mode="steps", now=0.0)
    labels = RunnerLabels(runner="abcdefghi", runner_name="one", system_id="s_1")
    metrics.count_finished(labels, seconds=40, failure_reason="script_failure", mode="steps")
    for line in (
        'gitlab_runner_job_execution_mode_total{executor="shell",mode="steps"} 1.0',
        f"gitlab_runner_job_queue_size{{{R}}} 7.0",
        f'gitlab_runner_job_duration_seconds_bucket{{le="60.0",mode="steps",{R}}} 1.0',
        f'gitlab_runner_worker_processing_failures_total{{failure_type="job_failure",{R}}} 1.0',
    ):
        assert line in rendered_lines(metrics), line


def test_resource_usage_of_jobs_adds_up(metrics: ManagerMetrics) -> None:
    labels = RunnerLabels(runner="abcdefghi", runner_name="one", system_id="s_1")
    metrics.count_usage(labels, JobUse(cpu_user_seconds=1.5, memory_peak_bytes=1 << 25, disk_written_bytes=7))
    metrics.count_usage(labels, JobUse(cpu_user_seconds=1.0))
    metrics.count_usage(labels, JobUse())
    for line in (
        f'remuda_manager_job_cpu_seconds_total{{mode="user",{R}}} 2.5',
        f'remuda_manager_job_disk_bytes_total{{direction="written",{R}}} 7.0',
        f"remuda_manager_job_memory_peak_bytes_count{{{R}}} 1.0",
    ):
        assert line in rendered_lines(metrics), line
    assert not any("network_bytes_total{" in line for line in rendered_lines(metrics))


def test_stages_are_not_measured_without_the_feature_flag(metrics: ManagerMetrics) -> None:
    metrics.count_stage(ONE, "step_script", 2.0)
    assert not any("stage_duration_seconds_count" in line for line in rendered_lines(metrics))


def test_warnings_and_errors_in_the_log_are_counted(metrics: ManagerMetrics) -> None:
    logger("manager").warning("careful")
    logger("cell").error("not ours")
    assert 'gitlab_runner_errors_total{level="warning"} 1.0' in rendered_lines(metrics)
    assert 'gitlab_runner_errors_total{level="error"} 0.0' in rendered_lines(metrics)


def test_saturation_is_the_share_of_slots_with_jobs() -> None:
    assert Load(running=3, requesting=1, free=0).saturation == 0.75
    assert Load(running=0, requesting=0, free=0).saturation == 1.0
