"""Cancel, timeouts and Close end all processes of a step; steps with `if: always()` still run."""

import os
from pathlib import Path

import pytest
from tests.support.step_jobs import Build

from remuda.steps.job_files.journal import folder_name
from remuda.testing.agent_process import AgentProcess, Seen, follow, run_job, steps_text, through_deaths
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentUnavailableError, JobStart

ALWAYS = {"name": "after", "script": "echo status $CI_JOB_STATUS", "if": "always()"}


def is_dead(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text()), 0)
    except ProcessLookupError:
        return True
    return False


def spawn_script(work: Path, *, stubborn: bool = False) -> str:
    """A script with a grandchild that does not end by itself. `stubborn`: both record SIGTERM and continue."""
    trap = f'trap "touch {work}/sigterm" TERM;' if stubborn else ""
    inner = f"{trap} echo $$ >new; mv new child; while :; do sleep 0.1; done"
    return f"sh -c '{inner}' & {trap} touch up; while :; do sleep 0.1; done"


async def start_and_cancel(agent: AgentProcess, job: JobStart, up: Path, times: int = 1) -> Seen:
    async with agent.client() as client:
        await client.start(job)
        await until(up.exists)
        for _ in range(times):
            await client.cancel(job.id)
        return await follow(client, job.id)


async def test_cancel_kills_the_whole_process_group(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    work = tmp_path / "work"
    steps = steps_text(
        {"name": "build", "script": spawn_script(work)}, {"name": "next", "script": "touch next"}, ALWAYS
    )
    seen = await start_and_cancel(agent, a_job(steps=steps), work / "child")
    end = seen.check()
    assert (end.status, end.reason) == ("cancelled", "job_canceled")
    assert seen.statuses == {"build": "cancelled", "next": "skipped", "after": "success"}
    assert seen.lines == [b"status canceled"]
    assert is_dead(work / "child")
    assert not (work / "next").exists()


async def test_a_process_that_ignores_sigterm_is_killed(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    work = tmp_path / "work"
    job = a_job(steps=steps_text({"name": "build", "script": spawn_script(work, stubborn=True)}))
    seen = await start_and_cancel(agent, job, work / "child")
    assert seen.check().status == "cancelled"
    assert (work / "sigterm").exists()
    await until(lambda: is_dead(work / "child"))


async def test_cancelling_twice_is_cancelling_once(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    work = tmp_path / "work"
    steps = steps_text({"name": "build", "script": spawn_script(work)}, ALWAYS)
    seen = await start_and_cancel(agent, a_job(steps=steps), work / "child", times=2)
    assert seen.check().status == "cancelled"
    assert seen.statuses == {"build": "cancelled", "after": "success"}
    await until(lambda: is_dead(work / "child"))


async def test_cancel_during_after_script_lets_it_finish(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    after = f"touch up; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo finished"
    steps = steps_text({"name": "build", "script": "true"}, {"name": "after", "script": after, "if": "always()"})
    async with agent.client() as client:
        await client.start(a_job(steps=steps))
        await until((tmp_path / "work/up").exists)
        await client.cancel("1")
        (tmp_path / "go").touch()
        seen = await follow(client, "1")
    assert seen.lines == [b"finished"]
    assert seen.check().status == "cancelled"


async def test_graceful_child_has_time_after_its_parent_ends(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    child = "trap 'sleep 0.5; touch cleaned; exit' TERM; touch up; while :; do sleep 0.05; done"
    job = a_job(steps=steps_text({"name": "build", "script": f'sh -c "{child}" & wait'}))
    await start_and_cancel(agent, job, tmp_path / "work/up")
    assert (tmp_path / "work/cleaned").exists()


@pytest.mark.long
async def test_cancel_survives_the_agents_death(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    work = tmp_path / "work"
    steps = steps_text({"name": "build", "script": spawn_script(work, stubborn=True)}, ALWAYS)
    async with agent.client() as client:
        await client.start(a_job(steps=steps))
        await until((work / "child").exists)
        await client.cancel("1")
    await agent.kill()
    await agent.start()
    async with agent.client() as client:
        seen = await follow(client, "1")
    assert seen.check().status == "cancelled"
    assert seen.statuses == {"build": "cancelled", "after": "success"}
    await until(lambda: is_dead(work / "child"))


async def test_job_timeout(agent: AgentProcess, a_job: Build) -> None:
    steps = steps_text({"name": "slow", "script": "sleep 60"}, {"name": "next", "script": "true"}, ALWAYS)
    seen = await run_job(agent, a_job(steps=steps, timeout_seconds=1))
    end = seen.check()
    assert (end.status, end.reason, end.exit_code) == ("failure", "job_execution_timeout", -1)
    assert seen.statuses == {"slow": "failure", "next": "skipped", "after": "success"}
    assert seen.lines == [b"status failed"]
    assert seen.agent_lines[-1] == b"ERROR: Job failed: the job took longer than its limit"


async def test_step_timeout_and_tolerated_failure(agent: AgentProcess, a_job: Build) -> None:
    steps = steps_text(
        {"name": "slow", "script": "sleep 60", "timeout": 0.3, "continue_on_error": True},
        {"name": "next", "script": "echo went on"},
        {"name": "failed", "script": "echo no", "if": "failure()"},
        {"name": "late", "script": "sleep 60", "timeout": 0.3},
    )
    seen = await run_job(agent, a_job(steps=steps))
    end = seen.check()
    assert seen.statuses == {"slow": "failure", "next": "success", "failed": "skipped", "late": "failure"}
    assert seen.lines == [b"went on"]
    assert end.message == 'step "late": the step took longer than its limit of 0.3 s'
    assert any(b'step "slow" failed: the step took longer' in line for line in seen.agent_lines)


@pytest.mark.parametrize("restarted", [False, True])
async def test_close_ends_and_removes_job(agent: AgentProcess, a_job: Build, tmp_path: Path, restarted: bool) -> None:
    work = tmp_path / "work"
    async with agent.client() as client:
        await client.start(a_job(steps=steps_text({"name": "build", "script": spawn_script(work, stubborn=True)})))
        await until((work / "child").exists)
    if restarted:
        await agent.kill()
        await agent.start()
    async with agent.client() as client:
        await client.close_job("1")
        await client.close_job("1")
        assert not (await client.hello()).jobs
        with pytest.raises(LookupError):
            await follow(client, "1")
    await until(lambda: is_dead(work / "child"))
    assert not list((agent.data / "jobs").iterdir())


async def test_id_is_free_after_close_and_its_log_starts_empty(agent: AgentProcess, a_job: Build) -> None:
    await run_job(agent, a_job(script="echo first"))
    async with agent.client() as client:
        await client.close_job("1")
    seen = await run_job(agent, a_job(script="echo second"))
    assert seen.lines == [b"second"]


async def test_a_job_that_cannot_be_removed_can_be_closed_again(agent: AgentProcess, a_job: Build) -> None:
    await run_job(agent, a_job(script="true"))
    obstacle = agent.data / "jobs" / f".gone-{folder_name('1')}"
    obstacle.touch()
    async with agent.client() as client:
        with pytest.raises(AgentUnavailableError, match="data folder"):
            await client.close_job("1")
        assert (await client.hello()).jobs == {"1"}
        obstacle.unlink()
        await client.close_job("1")
        assert (await client.hello()).jobs == frozenset()


IN_THE_BACKGROUND = "sh -c 'echo $$ >child; while :; do sleep 0.1; done' & while [ ! -s child ]; do sleep 0.02; done"
STUBBORN = IN_THE_BACKGROUND.replace("sh -c '", "sh -c 'trap : TERM; ")
CHECK_CHILD = {"name": "after", "script": "kill -0 $(cat child) && echo still running", "if": "always()"}


@pytest.mark.parametrize("script", [IN_THE_BACKGROUND, STUBBORN])
async def test_background_process_lives_on(agent: AgentProcess, a_job: Build, tmp_path: Path, script: str) -> None:
    seen = await run_job(agent, a_job(steps=steps_text({"name": "build", "script": script}, CHECK_CHILD)))
    assert seen.check().status == "success"
    assert seen.lines == [b"still running"]
    await until(lambda: is_dead(tmp_path / "work/child"))


@pytest.mark.parametrize("point", ["agent.step_exited", "agent.result_stored"])
async def test_background_process_ends_with_the_job_of_a_dead_agent(tmp_path: Path, a_job: Build, point: str) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start(kill_point=point)
        steps = steps_text({"name": "build", "script": IN_THE_BACKGROUND}, CHECK_CHILD)
        seen = await through_deaths(agent, a_job(steps=steps))
        assert seen.check().status == "success"
        assert seen.lines == [b"still running"]
        await until(lambda: is_dead(tmp_path / "work/child"))


async def test_close_kills_background_processes(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    after = {"name": "after", "script": "touch up; sleep 60"}
    async with agent.client() as client:
        await client.start(a_job(steps=steps_text({"name": "build", "script": STUBBORN}, after)))
        await until((tmp_path / "work/up").exists)
        await client.close_job("1")
    await until(lambda: is_dead(tmp_path / "work/child"))
