"""The Prometheus alert rules that are shipped: they use existing metrics, and each alert fires when it should."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.servers.prometheus_server import PROGRAM

from remuda.manager.metrics.metric_table import SERVED

ROOT = Path(__file__).parents[3]
RULES = ROOT / "packaging" / "prometheus" / "remuda-manager.rules.yml"
PAGE = ROOT / "docs" / "reference" / "metrics.md"
LABELS = '{runner_name="one", instance="m"}'
FIRING_SERIES = {
    "RemudaServerNotWell": {f"remuda_manager_runner_well{LABELS}": "0x300"},
    "RemudaDiskFull": {f"remuda_manager_runner_blocked{LABELS}": "1x300"},
    "RemudaSaturated": {'remuda_manager_saturation{instance="m"}': "1x300"},
    "RemudaSystemFailures": {
        'gitlab_runner_failed_jobs_total{runner_name="one", instance="m", failure_reason="runner_system_failure"}': (
            "0+1x300"
        ),
        f"gitlab_runner_jobs_total{LABELS}": "0+10x300",
    },
    "RemudaPluginNotWell": {'remuda_manager_scaling_group_well{group="aws"}': "0x300"},
    "RemudaPluginRestarts": {'remuda_manager_scaling_plugin_starts_total{group="aws"}': "1+1x300"},
    "RemudaMachinesNotCreated": {'remuda_manager_scaling_hindered_instances{reason="quota"}': "4x300"},
    "RemudaMaxInstances": {
        'remuda_manager_scaling_hindered_instances{reason="max_instances", group="aws", runner_name="one"}': "4x300",
        'fleeting_taskscaler_tasks{state="pending", runner_name="one"}': "2x300",
    },
    "RemudaCreationsFail": {
        'remuda_manager_scaling_failed_creations_total{group="aws", cause="refused"}': "0+1x300",
        'remuda_manager_scaling_boot_seconds_count{group="aws"}': "0x300",
    },
    "RemudaMachinesVanish": {'remuda_manager_scaling_lost_machines_total{cause="replaced"}': "0+1x300"},
    "RemudaJobsWaitForMachines": {
        'remuda_manager_scaling_slot_wait_seconds_bucket{le="300.0"}': "0x300",
        'remuda_manager_scaling_slot_wait_seconds_bucket{le="600.0"}': "0+5x300",
        'remuda_manager_scaling_slot_wait_seconds_bucket{le="+Inf"}': "0+5x300",
    },
    "RemudaMachinesIdle": {
        'remuda_manager_scaling_machine_seconds_total{group="aws", use="idle"}': "0+100x300",
        'remuda_manager_scaling_machine_seconds_total{group="aws", use="busy"}': "0+10x300",
    },
    "RemudaOrphans": {"remuda_manager_scaling_orphans": "1x300"},
}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_every_rule_uses_existing_metrics_and_has_texts() -> None:
    assert {rule["alert"] for rule in rules()} == set(FIRING_SERIES)
    for rule in rules():
        names = re.findall(r"\b(?:gitlab_runner|fleeting|remuda_manager)_\w+", rule["expr"])
        assert names
        assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in names} <= set(SERVED), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.long
@pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed: make packages")
def test_each_alert_fires_when_it_should_and_no_other_does(tmp_path: Path) -> None:
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": "4h",
                    "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}],
                }
            ],
        }
        for alert, series in FIRING_SERIES.items()
    ]
    case = tmp_path / "rules.test.json"
    case.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    result = subprocess.run(["promtool", "test", "rules", str(case)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed: make packages")
def test_prometheus_can_read_the_expressions_of_the_page(tmp_path: Path) -> None:
    expressions = re.findall(r"^```promql\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(expressions) >= 5
    rules = [{"record": f"page:{number}", "expr": expression} for number, expression in enumerate(expressions)]
    file = tmp_path / "page.json"
    file.write_text(json.dumps({"groups": [{"name": "page", "rules": rules}]}))
    result = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
