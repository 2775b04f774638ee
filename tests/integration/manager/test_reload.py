"""Changes of the configuration while a manager runs, and signals."""

import asyncio
import signal

from tests.support.runners.manager_harness import ManagerHarness

from remuda.manager.process.control import ask_status
from remuda.testing.coordinator import OTHER_TOKEN, RUNNER_TOKEN, Coordinator
from remuda.testing.environment import FakeEnvironment
from remuda.testing.waiting import until


def statuses(coordinator: Coordinator) -> list[str]:
    return [job.status for job in coordinator.jobs.values()]


def count_in_log(harness: ManagerHarness, text: str) -> int:
    return (harness.folder / "manager.out").read_text().count(text)


async def test_concurrent_and_limits_apply_without_a_restart(
    harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    harness.write_config(concurrent=1)
    async with harness.manager(environment) as events:
        for _ in range(4):
            await coordinator.enqueue("true")
        await coordinator.until(lambda: statuses(coordinator).count("running") == 1)
        harness.write_config(concurrent=4, extra="limit = 3")
        await coordinator.until(lambda: statuses(coordinator).count("running") == 3)
        harness.write_config(concurrent=4)
        await coordinator.until(lambda: statuses(coordinator).count("running") == 4)
        harness.write_config(concurrent=2)
        events.reload.set()
        await environment.agent.until(lambda: len(environment.agent.jobs) == 4)
        for key in list(environment.agent.jobs)[:2]:
            await environment.agent.end(key)
        await environment.agent.until(lambda: len(environment.agent.jobs) == 2)
        late = await coordinator.enqueue("true")
        await environment.agent.end(next(iter(environment.agent.jobs)))
        await coordinator.until(lambda: late.status == "running")
        events.stop.set()


async def test_jobs_of_replaced_runners_end(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment) as events:
        first = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        harness.config.write_text(harness.config.read_text().replace(RUNNER_TOKEN, OTHER_TOKEN))
        events.reload.set()
        await harness.coordinator.until(
            lambda: any(headers.get("runner-token") == OTHER_TOKEN for _, headers in harness.coordinator.requests)
        )
        second = await harness.coordinator.enqueue("true")
        await environment.agent.until(lambda: len(environment.agent.jobs) == 2)
        await environment.agent.end(key)
        await environment.agent.end(await environment.agent.job())
        await harness.coordinator.until(lambda: first.is_over and second.is_over)
    assert [first.status, second.status] == ["success", "success"]
    assert harness.rows() == 0


async def test_the_last_runner_can_be_removed_and_added(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment) as events:
        original = harness.config.read_text()
        await until(lambda: harness.coordinator.held > 0)
        harness.config.write_text("concurrent = 4\n")
        events.reload.set()
        await until(lambda: not harness.coordinator.held)
        job = await harness.coordinator.enqueue("true")
        assert (await ask_status(harness.data)).runners == ()
        harness.config.write_text("")  # as some editors do for a moment
        events.reload.set()
        assert job.status == "pending"
        harness.config.write_text(original)
        events.reload.set()
        await environment.agent.end(await environment.agent.job())
        await harness.coordinator.until_over(job)
    assert job.status == "success"


async def test_a_new_policy_applies_to_new_jobs(harness: ManagerHarness, coordinator: Coordinator) -> None:
    harness.write_config()
    process = await harness.spawn()
    await coordinator.until_over(await coordinator.enqueue("echo hello"))
    policy = '[runners.remuda.policy]\ndefault = "deny"\n'
    harness.write_config(extra=policy)
    await until(lambda: count_in_log(harness, "configuration reloaded") == 1)
    job = await coordinator.enqueue("echo hello")
    await coordinator.until_over(job)
    assert job.status == "failed"
    process.send_signal(signal.SIGQUIT)
    assert await process.wait() == 0


async def test_invalid_file_is_logged_once_and_not_loaded(harness: ManagerHarness, coordinator: Coordinator) -> None:
    harness.write_config(top='listen_address = ""')
    good = harness.config.read_text()
    process = await harness.spawn()
    await coordinator.until(lambda: coordinator.requests)
    harness.config.write_text("concurrent = 'many'\n")
    await until(lambda: count_in_log(harness, "cannot use the new configuration; keeping the old one") == 1)
    await coordinator.until_over(await coordinator.enqueue("true"))
    # It is logged once although the file is checked several times. Then a key that needs a restart is named.
    harness.config.write_text(good.replace('listen_address = ""', 'listen_address = "127.0.0.1:1"'))
    await until(lambda: count_in_log(harness, "configuration changes need a restart") == 1)
    assert "listen_address" in (harness.folder / "manager.out").read_text()
    assert count_in_log(harness, "cannot use the new configuration; keeping the old one") == 1
    process.send_signal(signal.SIGHUP)
    await until(lambda: count_in_log(harness, "configuration reloaded") == 2)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def test_a_second_stop_signal_ends_the_process_at_once(harness: ManagerHarness, coordinator: Coordinator) -> None:
    process = await harness.spawn()
    await coordinator.until(lambda: coordinator.requests)
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(20):
        assert await process.wait() == 1
