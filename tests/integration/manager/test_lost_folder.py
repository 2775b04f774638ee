"""Removes the data folder while a manager runs or between two managers; the jobs continue."""

import asyncio
import json
import shutil
import signal
from pathlib import Path

import pytest
from tests.support.runners.manager_harness import ManagerHarness

from remuda.lib.killpoints import QUIET_POINTS
from remuda.manager.process import supervision
from remuda.testing.coordinator import Coordinator, ServerJob
from remuda.testing.environment import FakeEnvironment
from remuda.testing.waiting import until

pytestmark = pytest.mark.long
LINES = 200


def script(harness: ManagerHarness) -> list[str]:
    """Return a script that counts its runs, prints numbered lines, and waits in the middle."""
    return [
        f"echo ran >> {harness.folder}/runs",
        f"for n in $(seq 1 {LINES}); do echo line $n; done",
        f"until [ -e {harness.folder}/go ]; do sleep 0.05; done",
        f"for n in $(seq {LINES + 1} {2 * LINES}); do echo line $n; done",
    ]


def check(harness: ManagerHarness, job: ServerJob) -> None:
    assert job.status == "success", bytes(job.trace)[-2000:]
    assert (harness.folder / "runs").read_text() == "ran\n"
    lines = [line for line in job.output.decode().splitlines() if line.startswith("line ")]
    assert lines == [f"line {n}" for n in range(1, 2 * LINES + 1)]
    assert [result["seq"] for result in job.results] == list(range(1, len(job.results) + 1))


async def wait_for_exit(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(30):
        return await process.wait()


@pytest.mark.parametrize("is_folder_removed", [True, False], ids=["folder", "journal"])
async def test_a_running_manager_creates_its_folder_again(harness: ManagerHarness, is_folder_removed: bool) -> None:
    process = await harness.spawn()
    job = await harness.coordinator.enqueue(*script(harness))
    await harness.coordinator.until(lambda: b"line 200\n" in job.output)
    if is_folder_removed:
        shutil.rmtree(harness.data)
    else:
        (harness.data / "journal.sqlite").unlink()
    await until(lambda: b"recreated it" in (harness.folder / "manager.out").read_bytes())
    # A new process can use the new folder, too.
    process.kill()
    await process.wait()
    assert harness.rows() == 1
    process = await harness.spawn()
    (harness.folder / "go").touch()
    await harness.coordinator.until_over(job)
    process.send_signal(signal.SIGQUIT)
    assert await wait_for_exit(process) == 0
    check(harness, job)
    assert harness.rows() == 0


async def test_new_manager_recovers_jobs_without_old_folder(harness: ManagerHarness, coordinator: Coordinator) -> None:
    process = await harness.spawn()
    jobs = [await coordinator.enqueue(*script(harness)), await coordinator.enqueue("echo over")]
    await coordinator.until(lambda: b"line 200\n" in jobs[0].output)
    await coordinator.until_over(jobs[1])
    process.kill()
    await process.wait()
    shutil.rmtree(harness.data)
    process = await harness.spawn()
    await until(lambda: b"recovered a job" in (harness.folder / "manager.out").read_bytes())
    (harness.folder / "go").touch()
    await coordinator.until_over(jobs[0])
    process.send_signal(signal.SIGQUIT)
    assert await wait_for_exit(process) == 0
    check(harness, jobs[0])
    assert harness.rows() == 0


async def test_jobs_whose_folder_was_removed_name_the_cause(harness: ManagerHarness, coordinator: Coordinator) -> None:
    process = await harness.spawn()
    job = await coordinator.enqueue(*script(harness))
    await coordinator.until(lambda: b"line 200\n" in job.output)
    removed = harness.jobs.rename(harness.folder / "away")  # atomic, because the agent continues to write
    shutil.rmtree(removed, ignore_errors=True)
    (harness.folder / "go").touch()
    await coordinator.until_over(job)
    assert job.status == "failed"
    # The cause is reported by the agent or, if it ended first, by its successor.
    causes = (b"is gone: somebody has removed it", b"its files are gone")
    assert any(cause in bytes(job.trace).splitlines()[-1] for cause in causes), bytes(job.trace)[-2000:]
    other = await coordinator.enqueue("echo goes on")
    await coordinator.until_over(other)
    assert other.status == "success", bytes(other.trace)
    process.send_signal(signal.SIGQUIT)
    assert await wait_for_exit(process) == 0
    events = [json.loads(line) for line in (harness.folder / "manager.out").read_text().splitlines() if line[:1] == "{"]
    assert [event["cause"] for event in events if event["event"] == "job finished" and "cause" in event] != []


async def test_manager_is_killed_after_it_recovered_a_job(harness: ManagerHarness, coordinator: Coordinator) -> None:
    assert "manager.found" in QUIET_POINTS
    process = await harness.spawn()
    job = await coordinator.enqueue(*script(harness))
    await coordinator.until(lambda: b"line 200\n" in job.output)
    process.kill()
    await process.wait()
    shutil.rmtree(harness.data)
    process = await harness.spawn(kill_point="manager.found")
    assert await wait_for_exit(process) == -signal.SIGKILL
    assert harness.rows() == 1
    process = await harness.spawn(kill_point="manager.found")
    (harness.folder / "go").touch()
    await coordinator.until_over(job)
    process.send_signal(signal.SIGQUIT)
    assert await wait_for_exit(process) == 0
    check(harness, job)


async def test_recovered_job_of_failed_state_is_closed(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    async with harness.manager(environment) as events:
        job = await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        await environment.agent.write(key, b"some bytes\n")
        await harness.coordinator.until(lambda: job.trace)
        events.stop.set()
    shutil.rmtree(harness.data)
    job.status = "failed"
    async with harness.manager(environment):
        await environment.agent.until(lambda: key in environment.agent.closed)
    assert harness.rows() == 0


async def start_and_lose_folder(harness: ManagerHarness, environment: FakeEnvironment) -> str:
    """Start a job, stop its manager and remove the manager's data. Returns the job's key at the agent."""
    async with harness.manager(environment) as events:
        await harness.coordinator.enqueue("true")
        key = await environment.agent.job()
        events.stop.set()
    shutil.rmtree(harness.data)
    return key


async def test_jobs_of_other_owners_are_not_recovered(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    key = await start_and_lose_folder(harness, environment)
    environment.agent.attended.add(key)
    environment.agent.jobs["of a step runner"] = environment.agent.jobs[key].without_owner()
    async with harness.manager(environment):
        other = await harness.coordinator.enqueue("true")
        await environment.agent.until(lambda: len(environment.agent.jobs) == 3)
        await environment.agent.end(list(environment.agent.jobs)[-1])
        await harness.coordinator.until_over(other)
    assert set(environment.agent.jobs) == {key, "of a step runner"}


async def test_recovered_job_is_confirmed_before_answers(harness: ManagerHarness, environment: FakeEnvironment) -> None:
    key = await start_and_lose_folder(harness, environment)
    environment.agent.confirmed.clear()
    await harness.coordinator.stop()
    async with harness.manager(environment) as events:
        await environment.agent.until(lambda: key in environment.agent.confirmed)
        events.stop.set()
    assert environment.agent.confirmed[key] == (0, 0)


async def test_a_new_job_does_not_share_the_folder_of_a_job_that_is_recovered_late(
    harness: ManagerHarness, coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = FakeEnvironment(tmp_path / "many", machines=("one",))
    key = await start_and_lose_folder(harness, environment)
    monkeypatch.setattr(supervision, "RECOVERY_SECONDS", 0.0)
    environment.used.clear()
    environment.is_broken = True
    async with harness.manager(environment) as events:
        await coordinator.enqueue("true")
        await until(lambda: len(environment.used) == 1)
        environment.is_broken = False
        await environment.agent.until(lambda: len(environment.agent.jobs) == 2)
        events.stop.set()
    folders = {job.request.work_dir for job in environment.agent.jobs.values()}
    assert len(folders) == 2
    async with harness.manager(environment):
        for job_key in list(environment.agent.jobs):
            await environment.agent.end(job_key)
        await coordinator.until(lambda: all(job.is_over for job in coordinator.jobs.values()))
    assert key in environment.agent.closed
    assert harness.rows() == 0
    await environment.remove()
