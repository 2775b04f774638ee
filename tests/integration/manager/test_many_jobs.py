"""Many jobs at once: slots, back-pressure, failing agents, and metrics."""

import os
from functools import partial

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.runners.manager_harness import ManagerHarness

from remuda.testing.coordinator import OTHER_TOKEN, Coordinator
from remuda.testing.environment import FakeEnvironment
from remuda.testing.lab import free_port
from remuda.testing.waiting import until

pytestmark = pytest.mark.long


async def test_concurrent_jobs_run_exactly_once(harness: ManagerHarness, coordinator: Coordinator) -> None:
    harness.write_config(concurrent=8)
    async with harness.manager():
        jobs = [await coordinator.enqueue(f"echo {n} >> {harness.folder}/ran", f"echo out {n}") for n in range(40)]
        await coordinator.until(lambda: all(job.is_over for job in jobs), seconds=60)
    assert {job.status for job in jobs} == {"success"}
    assert sorted((harness.folder / "ran").read_text().split(), key=int) == [str(n) for n in range(40)]
    for n, job in enumerate(jobs):
        assert f"out {n}\n".encode() in job.output
    assert harness.rows() == 0


async def test_at_most_concurrent_jobs_are_requested(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    harness.write_config(concurrent=2)
    async with harness.manager(environment):
        jobs = [await harness.coordinator.enqueue("true") for _ in range(3)]
        await harness.coordinator.until(lambda: [job.status for job in jobs].count("running") == 2)
        assert harness.coordinator.held == 0
        assert [job.status for job in jobs].count("pending") == 1
        first = await environment.agent.job()
        await environment.agent.end(first)
        await harness.coordinator.until(
            lambda: [job.status for job in jobs].count("running") == 2 and any(job.is_over for job in jobs)
        )
        await environment.agent.until(lambda: len(environment.agent.jobs) == 2)
        for key in list(environment.agent.jobs):
            await environment.agent.end(key)
        await harness.coordinator.until(lambda: all(job.is_over for job in jobs))


async def test_a_slow_server_costs_time_not_memory(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    """The log is much larger than the manager's buffer, and the server is down."""
    log = os.urandom(1 << 20) * 12
    async with harness.manager(environment):
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        await harness.coordinator.stop()
        await environment.agent.write(key, log)
        await environment.agent.end(key)
        await environment.agent.until(lambda: key in environment.agent.unsubscribed)
        assert environment.agent.sent_bytes < len(log) / 2
        await harness.coordinator.start()
        await harness.coordinator.until_over(job)
    assert bytes(job.trace) == log
    assert len(job.offsets) >= 12


async def test_agent_that_dies_again_only_delays_a_job(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment):
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        for number in range(5):
            await environment.agent.write(key, b"line %d\n" % number)
            await harness.coordinator.until(partial(job.has_grown_to, 7 * (number + 1)))
            await environment.die()
        environment.is_broken = True
        await environment.agent.write(key, b"while nobody could connect\n")
        await environment.agent.end(key)
        environment.is_broken = False
        await harness.coordinator.until_over(job)
    assert bytes(job.trace) == b"".join(b"line %d\n" % n for n in range(5)) + b"while nobody could connect\n"


async def test_no_job_is_requested_if_no_agent_starts(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    environment.is_broken = True
    async with harness.manager(environment):
        job = await harness.coordinator.enqueue("true")
        await until(lambda: environment.calls["connect"] >= 3)
        assert harness.coordinator.requests == []
        environment.is_broken = False
        await environment.agent.end(await environment.agent.job())
        await harness.coordinator.until_over(job)


async def test_no_job_is_requested_when_the_disk_is_full(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    environment.disk_free_bytes = 1000
    async with harness.manager(environment):
        await harness.coordinator.enqueue("true")
        await until(lambda: environment.calls["usage"] == 2)  # both polls have read it and wait
        assert harness.coordinator.requests == []


async def test_two_runners_share_the_last_slot(
    harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    """While both runners need the only slot, no request is held, so they take turns."""
    other = f'[[runners]]\nname = "other"\nurl = "{coordinator.url}"\ntoken = "{OTHER_TOKEN}"\nexecutor = "shell"\n'
    harness.write_config(concurrent=1, extra=other)
    coordinator.hold_seconds = 3600
    async with harness.manager(environment):
        await coordinator.until(lambda: len(coordinator.requests) >= 8)
        tokens = [headers["runner-token"] for _, headers in coordinator.requests]
        assert tokens.count(OTHER_TOKEN) >= 3


async def test_metrics_have_gitlab_runners_names_and_labels(
    harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    port = free_port()
    harness.write_config(top=f'listen_address = "127.0.0.1:{port}"')
    async with harness.manager(environment), aiohttp.ClientSession() as session:
        running = await coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.add_result(key, event="started", name="step_script")
        await coordinator.until(lambda: running.results)
        during = await (await session.get(f"http://127.0.0.1:{port}/metrics")).text()
        await environment.agent.end(key, "failure", "script_failure", 1)
        await environment.agent.until(lambda: key in environment.agent.closed)
        await coordinator.until_over(running)
        await coordinator.until(lambda: coordinator.held == 2)
        after = ""
        while "gitlab_runner_failed_jobs_total{" not in after:
            after = await (await session.get(f"http://127.0.0.1:{port}/metrics")).text()
    own = {labels["system_id"] for name, labels, _ in samples(during) if name == "gitlab_runner_limit"}.pop()
    by_id = {"runner": "abcdefghi", "system_id": own}
    runner = by_id | {"runner_name": "bench"}
    failed = {"runner": "abcdefghi", "runner_name": "bench", "mode": "traditional", "failure_reason": "script_failure"}
    jobs = runner | {"state": "running", "stage": "step_script", "executor_stage": ""}
    assert ("gitlab_runner_jobs", jobs, 1) in samples(during)
    requested = by_id | {"endpoint": "request_job", "method": "post", "status": "201"}
    updated = by_id | {"endpoint": "update_job", "method": "put", "status_class": "2xx"}
    for expected in (
        ("gitlab_runner_jobs_total", runner, 1),
        ("gitlab_runner_concurrent", {}, 4),
        ("gitlab_runner_limit", runner, 0),
        ("gitlab_runner_request_concurrency", by_id, 2),
        ("gitlab_runner_failed_jobs_total", failed, 1),
        ("gitlab_runner_job_queue_duration_seconds_count", runner | {"project_jobs_running": "0"}, 1),
        ("gitlab_runner_job_duration_seconds_count", runner | {"mode": "traditional"}, 1),
        ("gitlab_runner_api_request_statuses_total", requested, 1),
        ("gitlab_runner_api_request_duration_seconds_count", updated, 2),
        ("gitlab_runner_errors_total", {"level": "error"}, 0),
    ):
        assert expected in samples(after), expected
    assert any(name == "gitlab_runner_version_info" for name, _, _ in samples(after))


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    families = text_string_to_metric_families(text)
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]
