"""A configuration that changes under a running manager, and signals."""

import asyncio
import signal

from tests.support.runners.manager_bench import ManagerBench

from remuda.manager.process.control import ask_status
from remuda.testing.coordinator import OTHER_TOKEN, RUNNER_TOKEN, Coordinator
from remuda.testing.environment import FakeEnvironment
from remuda.testing.waiting import until


def statuses(coordinator: Coordinator) -> list[str]:
    return [job.status for job in coordinator.jobs.values()]


def said(bench: ManagerBench, text: str) -> int:
    return (bench.folder / "manager.out").read_text().count(text)


async def test_concurrent_and_limits_count_without_a_restart(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    bench.write_config(concurrent=1)
    async with bench.manager(environment) as events:
        for _ in range(4):
            await coordinator.enqueue("true")
        await coordinator.until(lambda: statuses(coordinator).count("running") == 1)
        bench.write_config(concurrent=4, extra="limit = 3")
        await coordinator.until(lambda: statuses(coordinator).count("running") == 3)
        bench.write_config(concurrent=4)
        await coordinator.until(lambda: statuses(coordinator).count("running") == 4)
        bench.write_config(concurrent=2)
        events.reload.set()
        await environment.agent.until(lambda: len(environment.agent.jobs) == 4)
        for key in list(environment.agent.jobs)[:2]:
            await environment.agent.end(key)
        await environment.agent.until(lambda: len(environment.agent.jobs) == 2)
        late = await coordinator.enqueue("true")
        await environment.agent.end(next(iter(environment.agent.jobs)))
        await coordinator.until(lambda: late.status == "running")
        events.stop.set()


async def test_runners_come_and_go_and_their_jobs_end(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    async with bench.manager(environment) as events:
        first = await coordinator.enqueue("true")
        key = await environment.agent.job()
        bench.config.write_text(bench.config.read_text().replace(RUNNER_TOKEN, OTHER_TOKEN))
        events.reload.set()
        await coordinator.until(
            lambda: any(headers.get("runner-token") == OTHER_TOKEN for _, headers in coordinator.requests)
        )
        second = await coordinator.enqueue("true")
        await environment.agent.until(lambda: len(environment.agent.jobs) == 2)
        await environment.agent.end(key)
        await environment.agent.end(await environment.agent.job())
        await coordinator.until(lambda: first.is_over and second.is_over)
    assert [first.status, second.status] == ["success", "success"]
    assert bench.rows() == 0


async def test_the_last_runner_may_go_and_come_back(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    async with bench.manager(environment) as events:
        whole = bench.config.read_text()
        await until(lambda: coordinator.held > 0)
        bench.config.write_text("concurrent = 4\n")
        events.reload.set()
        await until(lambda: not coordinator.held)
        job = await coordinator.enqueue("true")
        assert (await ask_status(bench.data)).runners == ()
        bench.config.write_text("")  # as an editor leaves it for a moment
        events.reload.set()
        assert job.status == "pending"
        bench.config.write_text(whole)
        events.reload.set()
        await environment.agent.end(await environment.agent.job())
        await coordinator.until_over(job)
    assert job.status == "success"


async def test_a_policy_counts_for_new_jobs(bench: ManagerBench, coordinator: Coordinator) -> None:
    bench.write_config()
    process = await bench.spawn()
    await coordinator.until_over(await coordinator.enqueue("echo hello"))
    policy = '[runners.remuda.policy]\ndefault = "deny"\n'
    bench.write_config(extra=policy)
    await until(lambda: said(bench, "configuration reloaded") == 1)
    job = await coordinator.enqueue("echo hello")
    await coordinator.until_over(job)
    assert job.status == "failed"
    process.send_signal(signal.SIGQUIT)
    assert await process.wait() == 0


async def test_a_broken_file_is_told_of_once_and_the_old_one_stays(
    bench: ManagerBench, coordinator: Coordinator
) -> None:
    bench.write_config(top='listen_address = ""')
    good = bench.config.read_text()
    process = await bench.spawn()
    await coordinator.until(lambda: coordinator.requests)
    bench.config.write_text("concurrent = 'many'\n")
    await until(lambda: said(bench, "cannot use the new configuration; keeping the old one") == 1)
    await coordinator.until_over(await coordinator.enqueue("true"))
    # Several looks later it is still said once; then a key that waits for a restart is named.
    bench.config.write_text(good.replace('listen_address = ""', 'listen_address = "127.0.0.1:1"'))
    await until(lambda: said(bench, "configuration changes need a restart") == 1)
    assert "listen_address" in (bench.folder / "manager.out").read_text()
    assert said(bench, "cannot use the new configuration; keeping the old one") == 1
    process.send_signal(signal.SIGHUP)
    await until(lambda: said(bench, "configuration reloaded") == 2)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def test_a_second_stop_ends_the_process_where_it_stands(bench: ManagerBench, coordinator: Coordinator) -> None:
    process = await bench.spawn()
    await coordinator.until(lambda: coordinator.requests)
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(20):
        assert await process.wait() == 1
