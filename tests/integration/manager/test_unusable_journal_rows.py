"""Rows of the journal that cannot be used as they are: the manager starts, and the other jobs go on."""

import sqlite3

from tests.support.runners.manager_bench import ManagerBench

from remuda.testing.coordinator import OTHER_TOKEN, RUNNER_TOKEN, Coordinator, ServerJob
from remuda.testing.environment import FakeEnvironment


async def left(bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment, sql: str) -> ServerJob:
    """A job that a manager leaves behind, whose row somebody changes then."""
    async with bench.manager(environment) as events:
        job = await coordinator.enqueue("true")
        await environment.agent.job()
        await coordinator.until(lambda: job.status == "running")
        events.stop.set()
    with sqlite3.connect(bench.data / "journal.sqlite") as connection:
        connection.executescript(sql)
    connection.close()
    return job


SPOILT = "update payloads set payload = cast(json_set(cast(payload as text), '$.job_info', 5) as blob)"


async def test_a_payload_that_cannot_be_read(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    job = await left(bench, coordinator, environment, f"{SPOILT}; update jobs set phase = 'acknowledged'")
    await environment.agent.forget()
    async with bench.manager(environment):
        await coordinator.until_over(job)
        other = await coordinator.enqueue("true")
        await environment.agent.end(await environment.agent.job())
        await coordinator.until_over(other)
    assert (job.status, job.updates[-1]["failure_reason"]) == ("failed", "runner_system_failure")
    assert other.status == "success"
    assert bench.rows() == 1


async def test_a_job_that_runs_is_found_through_its_agent_when_its_payload_cannot_be_read(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    job = await left(bench, coordinator, environment, SPOILT)
    async with bench.manager(environment):
        await environment.agent.end(await environment.agent.job())
        await coordinator.until_over(job)
    assert job.status == "success"
    assert bench.rows() == 0


async def test_settings_of_another_form(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    sql = "update runners set settings = cast(json_set(cast(settings as text), '$.limit', 'many') as blob)"
    job = await left(bench, coordinator, environment, sql)
    bench.write_config(extra="limit = 3")
    async with bench.manager(environment):
        await environment.agent.end(await environment.agent.job())
        await coordinator.until_over(job)
    assert job.status == "success"
    assert bench.rows() == 0


async def test_a_job_that_has_not_begun_does_not_begin_when_nobody_knows_its_runner(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    sql = "delete from runners; update jobs set settings = '', phase = 'acknowledged'"
    job = await left(bench, coordinator, environment, sql)
    await environment.agent.forget()
    bench.config.write_text(bench.config.read_text().replace(RUNNER_TOKEN, OTHER_TOKEN))
    async with bench.manager(environment):
        await coordinator.until_over(job)
    assert (job.status, job.updates[-1]["failure_reason"]) == ("failed", "runner_system_failure")
    assert b"is not configured any more" in job.trace
    assert environment.agent.jobs == {}
    assert bench.rows() == 0
