"""Environments with several machines: one machine per job, hooks around jobs, and lost machines."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from tests.support.runners.manager_harness import ManagerHarness

from remuda.lib.killpoints import QUIET_POINTS
from remuda.testing.coordinator import OTHER_TOKEN, Coordinator
from remuda.testing.environment import FakeEnvironment
from remuda.testing.waiting import until


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[FakeEnvironment]:
    fake = FakeEnvironment(tmp_path, machines=("one", "two"))
    yield fake
    await fake.remove()


async def test_each_job_has_a_machine_no_more_is_requested(harness: ManagerHarness, machines: FakeEnvironment) -> None:
    harness.write_config(concurrent=8)
    async with harness.manager(machines):
        jobs = [await harness.coordinator.enqueue("true") for _ in range(4)]
        first, second = machines.machines.values()
        await first.agent.job()
        await second.agent.job()
        assert [job.status for job in jobs].count("pending") == 2
        for _ in range(2):
            for machine in (first, second):
                key = await machine.agent.job()
                assert machines.used[key] in machines.machines
                await machine.agent.end(key)
                await machine.agent.until(partial(machine.agent.closed.__contains__, key))
        await harness.coordinator.until(lambda: all(job.is_over for job in jobs))
    assert {job.status for job in jobs} == {"success"}
    assert machines.used == {}


async def test_two_runners_with_one_environment_share_its_capacity(
    harness: ManagerHarness, coordinator: Coordinator, machines: FakeEnvironment
) -> None:
    other = f'[[runners]]\nname = "other"\nurl = "{coordinator.url}"\ntoken = "{OTHER_TOKEN}"\nexecutor = "shell"\n'
    harness.write_config(concurrent=8, extra=other)
    async with harness.manager(machines) as events:
        jobs = [await coordinator.enqueue("true") for _ in range(4)]
        for machine in machines.machines.values():
            await machine.agent.job()
        assert [job.status for job in jobs].count("pending") == 2
        events.stop.set()


async def test_job_keeps_its_machine_after_manager_restart(harness: ManagerHarness, machines: FakeEnvironment) -> None:
    async with harness.manager(machines) as events:
        job = await harness.coordinator.enqueue("true")
        key = await machines.machines["one"].agent.job()
        await machines.machines["one"].agent.write(key, b"first\n")
        await harness.coordinator.until(lambda: job.trace)
        events.stop.set()
    machines.used.clear()
    async with harness.manager(machines):
        await machines.machines["one"].agent.write(key, b"second\n")
        await machines.machines["one"].agent.end(key)
        await harness.coordinator.until_over(job)
    assert bytes(job.trace) == b"first\nsecond\n"
    assert machines.machines["two"].agent.closed == []


async def test_lost_machine_ends_only_its_jobs_with_cause(harness: ManagerHarness, machines: FakeEnvironment) -> None:
    first, second = machines.machines.values()
    async with harness.manager(machines):
        lost, other = [await harness.coordinator.enqueue("true") for _ in range(2)]
        await first.agent.job()
        key = await second.agent.job()
        if not key.startswith(f"{other.id}-"):
            lost, other = other, lost
        await first.agent.write(await first.agent.job(), b"some bytes\n")
        await harness.coordinator.until(lambda: lost.trace)
        first.lost = "the cloud took it back"
        await first.die()
        await harness.coordinator.until_over(lost)
        await second.agent.end(key)
        await harness.coordinator.until_over(other)
    assert lost.updates[-1]["failure_reason"] == "runner_system_failure"
    assert bytes(lost.trace).startswith(b"some bytes\n")
    assert b"the machine one is lost: the cloud took it back" in bytes(lost.trace)
    assert other.status == "success"
    assert machines.used == {}
    assert harness.rows() == 0


async def test_job_on_an_unknown_machine_fails_with_cause(harness: ManagerHarness, machines: FakeEnvironment) -> None:
    async with harness.manager(machines) as events:
        job = await harness.coordinator.enqueue("true")
        await machines.machines["one"].agent.job()
        events.stop.set()
    await machines.machines["one"].die()
    del machines.machines["one"]
    async with harness.manager(machines):
        await harness.coordinator.until_over(job)
    assert b"the machine one is lost: there is no machine one" in bytes(job.trace)


async def test_canceling_a_job_that_waits_for_a_machine(harness: ManagerHarness, machines: FakeEnvironment) -> None:
    machines.used = {"somebody": "one", "somebody else": "two"}
    async with harness.manager(machines, keep_alive_seconds=0.1):
        job = await harness.coordinator.enqueue("true")
        await until(lambda: machines.calls["acquire"] == 1)
        job.status = "canceling"
        await harness.coordinator.until_over(job)
    assert job.updates[-1]["failure_reason"] == "job_canceled"
    assert machines.used == {"somebody": "one", "somebody else": "two"}


async def test_hooks_run_around_every_job(harness: ManagerHarness, machines: FakeEnvironment) -> None:
    harness.write_config(extra='[runners.remuda]\nbefore_job = "prepare it"\nafter_job = "put it away"')
    async with harness.manager(machines):
        job = await harness.coordinator.enqueue("true")
        key = await machines.agent.job()
        assert machines.hooks == [("prepare it", key)]
        await machines.agent.end(key)
        await harness.coordinator.until_over(job)
    assert machines.hooks == [("prepare it", key), ("put it away", key)]


async def test_a_failing_hook_is_a_system_failure_of_its_job(harness: ManagerHarness, coordinator: Coordinator) -> None:
    harness.write_config(extra='[runners.remuda]\nbefore_job = "echo no licence >&2; exit 3"\nafter_job = "exit 1"')
    async with harness.manager():
        job = await coordinator.enqueue("echo never")
        await coordinator.until_over(job)
    assert job.updates[-1]["failure_reason"] == "runner_system_failure"
    assert b"the runner's before_job ended with 3: no licence" in bytes(job.trace)
    assert b"never" not in bytes(job.trace)
    assert harness.rows() == 0


PROGRAM = """
import asyncio, sys
from pathlib import Path
from remuda.manager.process.service import ManagerService
from remuda.testing.environment import FakeEnvironment

async def main(config, data, folder):
    machines = FakeEnvironment(Path(folder), machines=("one", "two"))
    await ManagerService(Path(config), Path(data), environment=machines).run(asyncio.Event())

asyncio.run(main(*sys.argv[1:]))
"""


async def test_job_of_a_dead_manager_gets_a_machine_again(harness: ManagerHarness, machines: FakeEnvironment) -> None:
    assert "manager.acquired" in QUIET_POINTS
    harness.write_config()
    job = await harness.coordinator.enqueue("true")
    arguments = [str(harness.config), str(harness.data), str(harness.folder)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *arguments, env={"REMUDA_KILL_POINT": "manager.acquired"}
    )
    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGKILL
    assert harness.rows() == 1
    async with harness.manager(machines):
        await machines.agent.end(await machines.agent.job())
        await harness.coordinator.until_over(job)
    assert job.status == "success"
