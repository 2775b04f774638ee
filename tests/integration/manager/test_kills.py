"""Kills the manager, the agent or both at any point; the job runs once and its log is exact."""

import asyncio
import os
import signal
from functools import partial

import pytest
from tests.support.runners.manager_harness import ManagerHarness

from remuda.lib.killpoints import POINTS
from remuda.testing.coordinator import Coordinator, ServerJob
from remuda.testing.environment import FakeEnvironment, FakeJob
from remuda.wire.proto.agent_pb2 import StartRequest

pytestmark = pytest.mark.long

MANAGER_POINTS = [name for name in POINTS if name.startswith("manager.")]
LINES = 300


def script(harness: ManagerHarness) -> list[str]:
    """Return a script that counts its runs and prints numbered lines."""
    return [f"echo ran >> {harness.folder}/runs", f"for n in $(seq 1 {LINES}); do echo line $n; sleep 0.002; done"]


def waiting_script(harness: ManagerHarness) -> list[str]:
    """Like `script`, but it waits in the middle until the file `go` exists."""
    before, after = script(harness)
    return [before, "echo waiting", f"until [ -e {harness.folder}/go ]; do sleep 0.05; done", after]


def check(harness: ManagerHarness, job: ServerJob) -> None:
    assert job.status == "success"
    assert (harness.folder / "runs").read_text() == "ran\n"
    lines = [line for line in job.output.decode().splitlines() if line.startswith("line ")]
    assert lines == [f"line {n}" for n in range(1, LINES + 1)]
    assert [result["seq"] for result in job.results] == list(range(1, len(job.results) + 1))


async def drain(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGQUIT)
    async with asyncio.timeout(20):
        assert await process.wait() == 0


@pytest.mark.parametrize("point", MANAGER_POINTS)
async def test_manager_is_killed_at_any_point(point: str, harness: ManagerHarness, coordinator: Coordinator) -> None:
    coordinator.lease_seconds = 1.0
    coordinator.hold_seconds = 1.0
    job = await coordinator.enqueue(*script(harness))
    process = await harness.spawn(kill_point=point)
    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGKILL, (harness.folder / "manager.out").read_text()
    request_count = len(coordinator.requests)
    restarted = await harness.spawn(kill_point=point)
    await coordinator.until(lambda: any("jobs/request" in name for name, _ in coordinator.requests[request_count:]))
    await coordinator.until_over(job)
    await drain(restarted)
    check(harness, job)
    assert harness.rows() == 0


async def test_the_manager_is_killed_several_times(harness: ManagerHarness, coordinator: Coordinator) -> None:
    job = await coordinator.enqueue(*script(harness))
    for size in (100, 3000, 6000):
        process = await harness.spawn()
        await coordinator.until(partial(job.has_grown_to, size))
        process.kill()
        await process.wait()
    request_count = len(coordinator.requests)
    process = await harness.spawn()
    # The job may already have ended, and a manager that was just started does not handle signals yet.
    await coordinator.until(lambda: len(coordinator.requests) > request_count)
    await coordinator.until_over(job)
    await drain(process)
    check(harness, job)
    assert harness.rows() == 0


async def test_the_agent_is_killed_while_the_job_runs(harness: ManagerHarness, coordinator: Coordinator) -> None:
    async with harness.manager():
        job = await coordinator.enqueue(*waiting_script(harness))
        await coordinator.until(lambda: b"waiting\n" in job.output)
        first = harness.agent_pid
        harness.kill_agent()
        (harness.folder / "go").touch()
        await coordinator.until_over(job)
        assert harness.agent_pid != first
    check(harness, job)


async def test_manager_and_agent_are_killed_at_once(harness: ManagerHarness, coordinator: Coordinator) -> None:
    process = await harness.spawn()
    job = await coordinator.enqueue(*waiting_script(harness))
    await coordinator.until(lambda: b"waiting\n" in job.output)
    harness.kill_agent()
    process.kill()
    await process.wait()
    (harness.folder / "go").touch()
    async with harness.manager():
        await coordinator.until_over(job)
    check(harness, job)


async def test_job_that_an_agent_lost_names_the_cause(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment) as events:
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.write(key, b"some bytes\n")
        await harness.coordinator.until(lambda: job.trace)
        events.stop.set()
    await environment.agent.forget()
    environment.agent.jobs["of somebody else"] = FakeJob(StartRequest())
    async with harness.manager(environment):
        await harness.coordinator.until_over(job)
    assert job.updates[-1]["failure_reason"] == "runner_system_failure"
    assert bytes(job.trace).startswith(b"some bytes\n")
    assert b"ERROR: Job failed (system failure): the agent lost the job" in bytes(job.trace)


async def test_sigterm_stops_manager_and_the_job_continues(harness: ManagerHarness, coordinator: Coordinator) -> None:
    process = await harness.spawn()
    job = await coordinator.enqueue("echo started; sleep 60")
    await coordinator.until(lambda: b"started\n" in job.output)
    process.terminate()
    async with asyncio.timeout(30):
        assert await process.wait() == 0
    assert not job.is_over
    assert harness.rows() == 1
    os.kill(harness.agent_pid, 0)
