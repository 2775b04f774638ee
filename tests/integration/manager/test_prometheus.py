"""Metrics as scraped by a real Prometheus: names, types, labels and buckets of the table. Also the health checks."""

from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.support.runners.manager_harness import ManagerHarness
from tests.support.servers.prometheus_server import PROGRAM, prometheus

from remuda.manager.metrics.metric_table import HIGH_CARDINALITY_FLAG, MISSING, SERVED
from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment
from remuda.testing.lab import free_port
from remuda.wire.proto import agent_pb2 as pb

NAMES = {
    "counter": ("{}",),
    "gauge": ("{}",),
    "histogram": ("{}_bucket", "{}_sum", "{}_count"),
}


@pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed: make packages")
async def test_every_metric_has_gitlab_runners_name_type_labels_and_buckets(
    tmp_path: Path, harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    address = f"127.0.0.1:{free_port()}"
    harness.write_config(
        top=f'listen_address = "{address}"', extra=f"[runners.feature_flags]\n{HIGH_CARDINALITY_FLAG} = true"
    )
    coordinator.fail_once("PUT", lambda _: web.Response(status=502))
    async with harness.manager(environment):
        failing = await coordinator.enqueue("false")
        key = await environment.agent.job()
        await environment.agent.add_result(key, event="started", name="step_script")
        await coordinator.until(lambda: failing.results)
        environment.agent.used.MergeFrom(
            pb.JobUse(
                cpu_user_seconds=1.5,
                disk_read_bytes=1,
                network_sent_bytes=1,
                memory_peak_bytes=1 << 20,
                work_dir_bytes=1,
            )
        )
        await environment.agent.end(key, "failure", "script_failure", 1)
        await coordinator.until_over(failing)
        await environment.agent.until(lambda: not environment.agent.jobs)
        await coordinator.enqueue("true")
        running = await environment.agent.job()
        async with prometheus(tmp_path / "prometheus", address) as peer:
            await peer.wait_for_metric("gitlab_runner_jobs")
            series, types = await peer.series(), await peer.types()
            saturation = await peer.value("max(gitlab_runner_jobs) / max(gitlab_runner_concurrent)")
            reported = await peer.value("remuda_manager_saturation")
        await environment.agent.end(running)
    assert saturation == reported == 0.25
    absent = set()
    for family in SERVED.values():
        for pattern in NAMES[family.kind]:
            samples = series.pop(pattern.format(family.name), None)
            if samples is None:
                absent.add(family.name)
                continue
            labels = {*family.labels, *(("le",) if pattern.endswith("_bucket") else ())}
            # Prometheus omits labels with an empty value.
            assert all(set(sample) <= labels for sample in samples), (family.name, samples)
            present = {name for sample in samples for name in sample}
            assert labels - present <= {"branch", "go_version", "built_at", "executor_stage"}, (family.name, samples)
            if pattern.endswith("_bucket"):
                buckets = {float(sample["le"]) for sample in samples if sample["le"] != "+Inf"}
                assert buckets == set(family.buckets), family.name
        assert types.get(family.name, types.get(family.name.removesuffix("_total"))) == family.kind, family.name
    # Metrics of machines exist only with machines: see tests/integration/autoscaling/test_metrics.py.
    machine_prefixes = ("fleeting_", "gitlab_runner_autoscaling_", "remuda_manager_scaling_")
    assert absent == {name for name in SERVED if name.startswith(machine_prefixes)}
    assert {name for name in series if name.startswith(("gitlab_runner", "remuda", "fleeting"))} == set()
    assert not set(MISSING) & set(types)


async def test_health_endpoint(harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment) -> None:
    address = f"127.0.0.1:{free_port()}"
    harness.write_config(top=f'listen_address = "{address}"')
    async with harness.manager(environment) as events, aiohttp.ClientSession() as session:

        async def fetch(path: str) -> tuple[int, str]:
            async with session.get(f"http://{address}/health/{path}") as answer:
                return answer.status, (await answer.text()).strip()

        assert await fetch("ready") == await fetch("live") == (200, "running")
        job = await coordinator.enqueue("true")
        key = await environment.agent.job()
        events.drain.set()
        while (state := await fetch("ready")) == (200, "running"):
            pass
        assert state == (503, "graceful-shutdown")
        assert await fetch("live") == (200, "graceful-shutdown")
        await environment.agent.end(key)
        await coordinator.until_over(job)
