"""The data folder is removed, under a living manager and under none: the jobs go on all the same."""

import asyncio
import json
import shutil
import signal
from pathlib import Path

import pytest
from tests.support.runners.manager_bench import ManagerBench

from remuda.lib.killpoints import QUIET_POINTS
from remuda.manager.process import supervision
from remuda.testing.coordinator import Coordinator, ServerJob
from remuda.testing.environment import FakeEnvironment
from remuda.testing.waiting import until

pytestmark = pytest.mark.long
LINES = 200


def script(bench: ManagerBench) -> list[str]:
    """Says how often it ran, waits in the middle, and prints a log whose exactness can be checked."""
    return [
        f"echo ran >> {bench.folder}/runs",
        f"for n in $(seq 1 {LINES}); do echo line $n; done",
        f"until [ -e {bench.folder}/go ]; do sleep 0.05; done",
        f"for n in $(seq {LINES + 1} {2 * LINES}); do echo line $n; done",
    ]


def check(bench: ManagerBench, job: ServerJob) -> None:
    assert job.status == "success", bytes(job.trace)[-2000:]
    assert (bench.folder / "runs").read_text() == "ran\n"
    lines = [line for line in job.output.decode().splitlines() if line.startswith("line ")]
    assert lines == [f"line {n}" for n in range(1, 2 * LINES + 1)]
    assert [result["seq"] for result in job.results] == list(range(1, len(job.results) + 1))


async def ended(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(30):
        return await process.wait()


@pytest.mark.parametrize("whole", [True, False], ids=["folder", "journal"])
async def test_a_living_manager_makes_its_folder_anew(
    bench: ManagerBench, coordinator: Coordinator, whole: bool
) -> None:
    process = await bench.spawn()
    job = await coordinator.enqueue(*script(bench))
    await coordinator.until(lambda: b"line 200\n" in job.output)
    if whole:
        shutil.rmtree(bench.data)
    else:
        (bench.data / "journal.sqlite").unlink()
    await until(lambda: b"recreated it" in (bench.folder / "manager.out").read_bytes())
    # What it made anew is good for a new process, too.
    process.kill()
    await process.wait()
    assert bench.rows() == 1
    process = await bench.spawn()
    (bench.folder / "go").touch()
    await coordinator.until_over(job)
    process.send_signal(signal.SIGQUIT)
    assert await ended(process) == 0
    check(bench, job)
    assert bench.rows() == 0


async def test_a_new_manager_finds_the_jobs_of_one_whose_folder_is_gone(
    bench: ManagerBench, coordinator: Coordinator
) -> None:
    process = await bench.spawn()
    jobs = [await coordinator.enqueue(*script(bench)), await coordinator.enqueue("echo over")]
    await coordinator.until(lambda: b"line 200\n" in jobs[0].output)
    await coordinator.until_over(jobs[1])
    process.kill()
    await process.wait()
    shutil.rmtree(bench.data)
    process = await bench.spawn()
    await until(lambda: b"recovered a job" in (bench.folder / "manager.out").read_bytes())
    (bench.folder / "go").touch()
    await coordinator.until_over(jobs[0])
    process.send_signal(signal.SIGQUIT)
    assert await ended(process) == 0
    check(bench, jobs[0])
    assert bench.rows() == 0


async def test_jobs_whose_own_folder_is_gone_end_with_the_cause_and_others_run(
    bench: ManagerBench, coordinator: Coordinator
) -> None:
    process = await bench.spawn()
    job = await coordinator.enqueue(*script(bench))
    await coordinator.until(lambda: b"line 200\n" in job.output)
    away = bench.jobs.rename(bench.folder / "away")  # at one go: the agent writes on
    shutil.rmtree(away, ignore_errors=True)
    (bench.folder / "go").touch()
    await coordinator.until_over(job)
    assert job.status == "failed"
    # Whoever notices first says it: the agent, or the one that comes after it.
    causes = (b"is gone: somebody has removed it", b"its files are gone")
    assert any(cause in bytes(job.trace).splitlines()[-1] for cause in causes), bytes(job.trace)[-2000:]
    other = await coordinator.enqueue("echo goes on")
    await coordinator.until_over(other)
    assert other.status == "success", bytes(other.trace)
    process.send_signal(signal.SIGQUIT)
    assert await ended(process) == 0
    told = [json.loads(line) for line in (bench.folder / "manager.out").read_text().splitlines() if line[:1] == "{"]
    assert [one["cause"] for one in told if one["event"] == "job finished" and "cause" in one] != []


async def test_it_dies_when_it_has_found_a_job(bench: ManagerBench, coordinator: Coordinator) -> None:
    assert "manager.found" in QUIET_POINTS
    process = await bench.spawn()
    job = await coordinator.enqueue(*script(bench))
    await coordinator.until(lambda: b"line 200\n" in job.output)
    process.kill()
    await process.wait()
    shutil.rmtree(bench.data)
    process = await bench.spawn(kill_point="manager.found")
    assert await ended(process) == -signal.SIGKILL
    assert bench.rows() == 1
    process = await bench.spawn(kill_point="manager.found")
    (bench.folder / "go").touch()
    await coordinator.until_over(job)
    process.send_signal(signal.SIGQUIT)
    assert await ended(process) == 0
    check(bench, job)


async def test_what_the_server_has_given_up_is_closed_at_the_agent(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    async with bench.manager(environment) as events:
        job = await coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.write(key, b"some bytes\n")
        await coordinator.until(lambda: job.trace)
        events.stop.set()
    shutil.rmtree(bench.data)
    job.status = "failed"
    async with bench.manager(environment):
        await environment.agent.until(lambda: key in environment.agent.closed)
    assert bench.rows() == 0


async def test_jobs_of_others_are_left_alone(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    async with bench.manager(environment) as events:
        await coordinator.enqueue("true")
        key = await environment.agent.job()
        events.stop.set()
    shutil.rmtree(bench.data)
    environment.agent.attended.add(key)
    environment.agent.jobs["of a step runner"] = environment.agent.jobs[key].without_owner()
    async with bench.manager(environment):
        other = await coordinator.enqueue("true")
        await environment.agent.until(lambda: len(environment.agent.jobs) == 3)
        await environment.agent.end(list(environment.agent.jobs)[-1])
        await coordinator.until_over(other)
    assert set(environment.agent.jobs) == {key, "of a step runner"}


async def test_an_agent_hears_of_who_found_its_job_before_the_server_answers(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment
) -> None:
    async with bench.manager(environment) as events:
        await coordinator.enqueue("true")
        key = await environment.agent.job()
        events.stop.set()
    shutil.rmtree(bench.data)
    environment.agent.confirmed.clear()
    await coordinator.stop()
    async with bench.manager(environment) as events:
        await environment.agent.until(lambda: key in environment.agent.confirmed)
        events.stop.set()
    assert environment.agent.confirmed[key] == (0, 0)


async def test_a_new_job_does_not_work_where_one_does_that_was_found_late(
    bench: ManagerBench, coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = FakeEnvironment(tmp_path / "many", machines=("one",))
    async with bench.manager(environment) as events:
        await coordinator.enqueue("true")
        key = await environment.agent.job()
        events.stop.set()
    shutil.rmtree(bench.data)
    monkeypatch.setattr(supervision, "RECOVERY_SECONDS", 0.0)
    environment.used.clear()
    environment.is_broken = True
    async with bench.manager(environment) as events:
        await coordinator.enqueue("true")
        await until(lambda: len(environment.used) == 1)
        environment.is_broken = False
        await environment.agent.until(lambda: len(environment.agent.jobs) == 2)
        events.stop.set()
    folders = {one.request.work_dir for one in environment.agent.jobs.values()}
    assert len(folders) == 2
    async with bench.manager(environment):
        for one in list(environment.agent.jobs):
            await environment.agent.end(one)
        await coordinator.until(lambda: all(job.is_over for job in coordinator.jobs.values()))
    assert key in environment.agent.closed
    assert bench.rows() == 0
    await environment.remove()
