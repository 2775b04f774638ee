"""Cancelled and timed-out jobs of the custom executor, drivers that hang, and a driver that outlives the agent."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.support.runners.custom_driver import CustomHarness

from remuda.testing.agent_process import follow
from remuda.testing.waiting import until

HANG_IN_SCRIPT = """#!/bin/bash
echo "run $3" >>"$CALLS"
{trap}
if [ "$3" = step_script ]; then echo $$ >"$CALLS.pid"; while :; do sleep 0.1; done; fi
bash "$2"
"""
EXIT_ON_TERM = "trap 'echo told >>\"$CALLS\"; exit 0' TERM"
IGNORE_TERM = "trap 'echo ignored >>\"$CALLS\"' TERM"


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


@pytest.mark.parametrize(("trap", "recorded"), [(EXIT_ON_TERM, "told"), (IGNORE_TERM, "ignored")])
async def test_a_cancelled_job_ends_its_driver_and_cleans_up(harness: CustomHarness, trap: str, recorded: str) -> None:
    harness.driver.write("run", HANG_IN_SCRIPT.format(trap=trap))
    job = harness.job(after=["echo after $CI_JOB_STATUS"])
    pid_file = harness.driver.folder / "calls.pid"
    async with harness.agent.client() as client:
        await client.start(job)
        await until(lambda: pid_file.exists() and bool(pid_file.read_text()))
        await client.cancel(job.id)
        result = await follow(client, job.id)
    assert result.check().status == "cancelled"
    assert recorded in harness.driver.calls
    assert harness.driver.calls[-3:] == ["run after_script", "run cleanup_file_variables", "cleanup"]
    assert b"after canceled" in result.lines
    assert is_gone(int(pid_file.read_text()))


async def test_a_timed_out_job_cleans_up(harness: CustomHarness) -> None:
    harness.driver.write("run", HANG_IN_SCRIPT.format(trap=EXIT_ON_TERM))
    result = await harness.run(runner_info={"timeout": 2})
    assert result.check().reason == "job_execution_timeout"
    assert harness.driver.calls[-1] == "cleanup"


async def test_prepare_has_its_own_timeout(harness: CustomHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.manager.compile.custom.RETRY_SECONDS", 0)
    harness.driver.write("prepare", '#!/bin/sh\necho prepare >>"$CALLS"\nsleep 60\n')
    result = await harness.run(custom={"prepare_exec_timeout": 1})
    end = result.check()
    assert end.reason == "runner_system_failure"
    assert harness.driver.calls == ["config", "prepare", "cleanup"] * 3
    assert any(b"prepare_exec took longer than 1 s and was terminated" in line for line in result.lines)


async def test_cleanup_has_its_own_timeout(harness: CustomHarness) -> None:
    harness.driver.write("cleanup", "#!/bin/sh\nsleep 60\n")
    result = await harness.run(custom={"cleanup_exec_timeout": 1})
    assert result.check().status == "success"
    assert any(b"cleanup_exec took longer than 1 s" in line for line in result.lines)


async def test_a_job_can_be_cancelled_during_prepare(harness: CustomHarness) -> None:
    harness.driver.write("prepare", '#!/bin/sh\necho prepare >>"$CALLS"\nsleep 60\n')
    job = harness.job()
    async with harness.agent.client() as client:
        await client.start(job)
        await until(lambda: "prepare" in harness.driver.calls)
        await client.cancel(job.id)
        result = await follow(client, job.id)
    assert result.check().status == "cancelled"
    assert harness.driver.calls == ["config", "prepare", "cleanup"]


async def test_a_stage_continues_while_the_agent_restarts(harness: CustomHarness) -> None:
    go = harness.folder / "go"
    job = harness.job("echo begun", f"while [ ! -e {go} ]; do sleep 0.1; done", "echo done")
    async with harness.agent.client() as client:
        await client.start(job)
    await until(lambda: "run step_script" in harness.driver.calls)
    await harness.agent.kill()
    go.touch()
    await harness.agent.start()
    async with harness.agent.client() as client:
        result = await follow(client, job.id)
    assert result.check().status == "success"
    assert b"done" in result.lines
    assert harness.driver.stages.count("step_script") == 1
    assert harness.driver.calls[-1] == "cleanup"


@pytest.mark.long
@pytest.mark.parametrize("agent_dies", [False, True], ids=["", "agent_dies"])
async def test_closing_a_job_ends_its_driver_and_cleans_up(harness: CustomHarness, agent_dies: bool) -> None:
    harness.driver.write("run", HANG_IN_SCRIPT.format(trap="trap '' TERM"))
    job = harness.job()
    pid_file = harness.driver.folder / "calls.pid"
    async with harness.agent.client() as client:
        await client.start(job)
        await until(lambda: pid_file.exists() and bool(pid_file.read_text()))
        await client.close_job(job.id)
    if agent_dies:
        await harness.agent.kill()
        await harness.agent.start()
    await until(lambda: is_gone(int(pid_file.read_text())))
    await until(lambda: harness.driver.calls[-1] == "cleanup")
    await until(lambda: not list((harness.agent.data / "jobs").iterdir()))


async def test_a_killed_driver_is_a_runner_system_failure(harness: CustomHarness) -> None:
    harness.driver.write("run", HANG_IN_SCRIPT.format(trap=":"))
    job = harness.job()
    pid_file = harness.driver.folder / "calls.pid"
    async with harness.agent.client() as client:
        await client.start(job)
        await until(lambda: pid_file.exists() and bool(pid_file.read_text()))
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        async with asyncio.timeout(20):
            result = await follow(client, job.id)
    assert result.check().reason == "runner_system_failure"
    assert "run_exec was killed by signal 9" in result.check().message
