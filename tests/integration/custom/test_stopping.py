"""Drivers that hang: told to end, killed, left alone; and jobs that are cancelled or out of time."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.support.runners.custom_driver import Bench

from remuda.testing.agent_process import follow
from remuda.testing.waiting import until

HANGS = """#!/bin/bash
echo "run $3" >>"$CALLS"
{trap}
if [ "$3" = step_script ]; then echo $$ >"$CALLS.pid"; while :; do sleep 0.1; done; fi
bash "$2"
"""
ENDS = "trap 'echo told >>\"$CALLS\"; exit 0' TERM"
IGNORES = "trap 'echo ignored >>\"$CALLS\"' TERM"


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


@pytest.mark.parametrize(("trap", "said"), [(ENDS, "told"), (IGNORES, "ignored")])
async def test_a_cancelled_job_ends_its_driver_and_cleans_up(bench: Bench, trap: str, said: str) -> None:
    bench.driver.write("run", HANGS.format(trap=trap))
    job = bench.job(after=["echo after $CI_JOB_STATUS"])
    pid_file = bench.driver.folder / "calls.pid"
    async with bench.agent.client() as client:
        await client.start(job)
        await until(lambda: pid_file.exists() and bool(pid_file.read_text()))
        await client.cancel(job.id)
        seen = await follow(client, job.id)
    assert seen.check().status == "cancelled"
    assert said in bench.driver.calls
    assert bench.driver.calls[-3:] == ["run after_script", "run cleanup_file_variables", "cleanup"]
    assert b"after canceled" in seen.lines
    assert is_gone(int(pid_file.read_text()))


async def test_a_job_out_of_time_cleans_up(bench: Bench) -> None:
    bench.driver.write("run", HANGS.format(trap=ENDS))
    seen = await bench.run(runner_info={"timeout": 2})
    assert seen.check().reason == "job_execution_timeout"
    assert bench.driver.calls[-1] == "cleanup"


async def test_preparing_has_a_time_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.manager.compile.custom.RETRY_SECONDS", 0)
    bench.driver.write("prepare", '#!/bin/sh\necho prepare >>"$CALLS"\nsleep 60\n')
    seen = await bench.run(custom={"prepare_exec_timeout": 1})
    end = seen.check()
    assert end.reason == "runner_system_failure"
    assert bench.driver.calls == ["config", "prepare", "cleanup"] * 3
    assert any(b"prepare_exec took longer than 1 s and was terminated" in line for line in seen.lines)


async def test_cleaning_up_has_a_time_of_its_own(bench: Bench) -> None:
    bench.driver.write("cleanup", "#!/bin/sh\nsleep 60\n")
    seen = await bench.run(custom={"cleanup_exec_timeout": 1})
    assert seen.check().status == "success"
    assert any(b"cleanup_exec took longer than 1 s" in line for line in seen.lines)


async def test_cancelled_while_it_is_prepared(bench: Bench) -> None:
    bench.driver.write("prepare", '#!/bin/sh\necho prepare >>"$CALLS"\nsleep 60\n')
    job = bench.job()
    async with bench.agent.client() as client:
        await client.start(job)
        await until(lambda: "prepare" in bench.driver.calls)
        await client.cancel(job.id)
        seen = await follow(client, job.id)
    assert seen.check().status == "cancelled"
    assert bench.driver.calls == ["config", "prepare", "cleanup"]


async def test_a_stage_outlives_the_agent(bench: Bench) -> None:
    go = bench.folder / "go"
    job = bench.job("echo begun", f"while [ ! -e {go} ]; do sleep 0.1; done", "echo done")
    async with bench.agent.client() as client:
        await client.start(job)
    await until(lambda: "run step_script" in bench.driver.calls)
    await bench.agent.kill()
    go.touch()
    await bench.agent.start()
    async with bench.agent.client() as client:
        seen = await follow(client, job.id)
    assert seen.check().status == "success"
    assert b"done" in seen.lines
    assert bench.driver.stages.count("step_script") == 1
    assert bench.driver.calls[-1] == "cleanup"


@pytest.mark.long
@pytest.mark.parametrize("dies", [False, True], ids=["", "agent_dies"])
async def test_closing_a_job_ends_its_driver_and_cleans_up(bench: Bench, dies: bool) -> None:
    bench.driver.write("run", HANGS.format(trap="trap '' TERM"))
    job = bench.job()
    pid_file = bench.driver.folder / "calls.pid"
    async with bench.agent.client() as client:
        await client.start(job)
        await until(lambda: pid_file.exists() and bool(pid_file.read_text()))
        await client.close_job(job.id)
    if dies:
        await bench.agent.kill()
        await bench.agent.start()
    await until(lambda: is_gone(int(pid_file.read_text())))
    await until(lambda: bench.driver.calls[-1] == "cleanup")
    await until(lambda: not list((bench.agent.data / "jobs").iterdir()))


async def test_a_program_of_the_driver_that_is_killed_is_the_systems_failure(bench: Bench) -> None:
    bench.driver.write("run", HANGS.format(trap=":"))
    job = bench.job()
    pid_file = bench.driver.folder / "calls.pid"
    async with bench.agent.client() as client:
        await client.start(job)
        await until(lambda: pid_file.exists() and bool(pid_file.read_text()))
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        async with asyncio.timeout(20):
            seen = await follow(client, job.id)
    assert seen.check().reason == "runner_system_failure"
    assert "run_exec was killed by signal 9" in seen.check().message
