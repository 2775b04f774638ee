"""Journal rows that cannot be used: the manager starts, and the other jobs continue."""

import sqlite3

from tests.support.runners.manager_harness import ManagerHarness

from remuda.testing.coordinator import OTHER_TOKEN, RUNNER_TOKEN, Coordinator, ServerJob
from remuda.testing.environment import FakeEnvironment


async def leave_job(
    harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment, sql: str
) -> ServerJob:
    """Run a job until it starts, stop the manager, and change the journal with `sql`. Returns the job."""
    async with harness.manager(environment) as events:
        job = await coordinator.enqueue("true")
        await environment.agent.job()
        await coordinator.until(lambda: job.status == "running")
        events.stop.set()
    with sqlite3.connect(harness.data / "journal.sqlite") as connection:
        connection.executescript(sql)
    connection.close()
    return job


DAMAGE_PAYLOAD = "update payloads set payload = cast(json_set(cast(payload as text), '$.job_info', 5) as blob)"


async def test_waiting_job_with_bad_payload_fails(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    job = await leave_job(
        harness, harness.coordinator, environment, f"{DAMAGE_PAYLOAD}; update jobs set phase = 'acknowledged'"
    )
    await environment.agent.forget()
    async with harness.manager(environment):
        await harness.coordinator.until_over(job)
        other = await harness.coordinator.enqueue("true")
        await environment.agent.end(await environment.agent.job())
        await harness.coordinator.until_over(other)
    assert (job.status, job.updates[-1]["failure_reason"]) == ("failed", "runner_system_failure")
    assert other.status == "success"
    assert harness.rows() == 1


async def test_running_job_with_bad_payload_is_recovered(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    job = await leave_job(harness, harness.coordinator, environment, DAMAGE_PAYLOAD)
    async with harness.manager(environment):
        await environment.agent.end(await environment.agent.job())
        await harness.coordinator.until_over(job)
    assert job.status == "success"
    assert harness.rows() == 0


async def test_unreadable_runner_settings_are_ignored(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    sql = "update runners set settings = cast(json_set(cast(settings as text), '$.limit', 'many') as blob)"
    job = await leave_job(harness, harness.coordinator, environment, sql)
    harness.write_config(extra="limit = 3")
    async with harness.manager(environment):
        await environment.agent.end(await environment.agent.job())
        await harness.coordinator.until_over(job)
    assert job.status == "success"
    assert harness.rows() == 0


async def test_a_waiting_job_of_an_unknown_runner_fails(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    sql = "delete from runners; update jobs set settings = '', phase = 'acknowledged'"
    job = await leave_job(harness, harness.coordinator, environment, sql)
    await environment.agent.forget()
    harness.config.write_text(harness.config.read_text().replace(RUNNER_TOKEN, OTHER_TOKEN))
    async with harness.manager(environment):
        await harness.coordinator.until_over(job)
    assert (job.status, job.updates[-1]["failure_reason"]) == ("failed", "runner_system_failure")
    assert b"is not configured any more" in job.trace
    assert environment.agent.jobs == {}
    assert harness.rows() == 0
