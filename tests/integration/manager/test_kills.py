"""Any process may die on any line: the manager, the agent, both; the job is run once and its log is exact."""

import asyncio
import os
import signal
from functools import partial

import pytest
from tests.support.runners.manager_bench import ManagerBench

from remuda.lib.killpoints import POINTS
from remuda.testing.coordinator import Coordinator, ServerJob
from remuda.testing.environment import FakeEnvironment, FakeJob
from remuda.wire.proto.agent_pb2 import StartRequest

pytestmark = pytest.mark.long

MANAGER_POINTS = [name for name in POINTS if name.startswith("manager.")]
LINES = 300


def script(bench: ManagerBench) -> list[str]:
    """Says how often it ran, and prints a log whose exactness can be checked."""
    return [f"echo ran >> {bench.folder}/runs", f"for n in $(seq 1 {LINES}); do echo line $n; sleep 0.002; done"]


def waiting_script(bench: ManagerBench) -> list[str]:
    """The same, but it waits in the middle until the file `go` is there."""
    before, after = script(bench)
    return [before, "echo waiting", f"until [ -e {bench.folder}/go ]; do sleep 0.05; done", after]


def check(bench: ManagerBench, job: ServerJob) -> None:
    assert job.status == "success"
    assert (bench.folder / "runs").read_text() == "ran\n"
    lines = [line for line in job.output.decode().splitlines() if line.startswith("line ")]
    assert lines == [f"line {n}" for n in range(1, LINES + 1)]
    assert [result["seq"] for result in job.results] == list(range(1, len(job.results) + 1))


async def drained(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGQUIT)
    async with asyncio.timeout(20):
        assert await process.wait() == 0


@pytest.mark.parametrize("point", MANAGER_POINTS)
async def test_the_manager_dies_at(point: str, bench: ManagerBench, coordinator: Coordinator) -> None:
    coordinator.lease_seconds = 1.0
    coordinator.hold_seconds = 1.0
    job = await coordinator.enqueue(*script(bench))
    process = await bench.spawn(kill_point=point)
    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGKILL, (bench.folder / "manager.out").read_text()
    asked = len(coordinator.requests)
    again = await bench.spawn(kill_point=point)
    await coordinator.until(lambda: any("jobs/request" in name for name, _ in coordinator.requests[asked:]))
    await coordinator.until_over(job)
    await drained(again)
    check(bench, job)
    assert bench.rows() == 0


async def test_the_manager_is_killed_again_and_again(bench: ManagerBench, coordinator: Coordinator) -> None:
    job = await coordinator.enqueue(*script(bench))
    for size in (100, 3000, 6000):
        process = await bench.spawn()
        await coordinator.until(partial(job.has_grown_to, size))
        process.kill()
        await process.wait()
    asked = len(coordinator.requests)
    process = await bench.spawn()
    # The one before may have told the end of the job, and a manager that has just been started knows no signals yet.
    await coordinator.until(lambda: len(coordinator.requests) > asked)
    await coordinator.until_over(job)
    await drained(process)
    check(bench, job)
    assert bench.rows() == 0


async def test_the_agent_is_killed_while_the_job_runs(bench: ManagerBench, coordinator: Coordinator) -> None:
    async with bench.manager():
        job = await coordinator.enqueue(*waiting_script(bench))
        await coordinator.until(lambda: b"waiting\n" in job.output)
        first = bench.agent_pid
        bench.kill_agent()
        (bench.folder / "go").touch()
        await coordinator.until_over(job)
        assert bench.agent_pid != first
    check(bench, job)


async def test_manager_and_agent_are_killed_at_once(bench: ManagerBench, coordinator: Coordinator) -> None:
    process = await bench.spawn()
    job = await coordinator.enqueue(*waiting_script(bench))
    await coordinator.until(lambda: b"waiting\n" in job.output)
    bench.kill_agent()
    process.kill()
    await process.wait()
    (bench.folder / "go").touch()
    async with bench.manager():
        await coordinator.until_over(job)
    check(bench, job)


async def test_a_job_that_an_agent_lost_fails_with_the_cause(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    async with bench.manager(environment) as events:
        job = await coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.write(key, b"some bytes\n")
        await coordinator.until(lambda: job.trace)
        events.stop.set()
    await environment.agent.forget()
    environment.agent.jobs["of somebody else"] = FakeJob(StartRequest())
    async with bench.manager(environment):
        await coordinator.until_over(job)
    assert job.updates[-1]["failure_reason"] == "runner_system_failure"
    assert bytes(job.trace).startswith(b"some bytes\n")
    assert b"ERROR: Job failed (system failure): the agent lost the job" in bytes(job.trace)


async def test_signals_stop_and_drain(bench: ManagerBench, coordinator: Coordinator) -> None:
    process = await bench.spawn()
    job = await coordinator.enqueue("echo started; sleep 60")
    await coordinator.until(lambda: b"started\n" in job.output)
    process.terminate()
    async with asyncio.timeout(30):
        assert await process.wait() == 0
    assert not job.is_over
    assert bench.rows() == 1
    os.kill(bench.agent_pid, 0)
