"""Kills the agent during jobs: no step runs twice, no result is lost, and the log stays the same byte for byte."""

import asyncio
import os
import random
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import pytest
from tests.support.agent_kills import run_with_kills
from tests.support.step_jobs import Build

from remuda.lib.killpoints import POINTS
from remuda.steps.job_files.journal import folder_name
from remuda.testing.agent_process import AgentProcess, Seen, follow, steps_text, through_deaths
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentClient, AgentUnavailableError, JobStart, JobVariable, LogChunk
from remuda.wire.proto.agent_pb2 import StartRequest

# Prints whole lines, an unfinished line, and a secret in two parts, with pauses in between.
TALKATIVE = """
echo run >>runs
for n in 1 2 3 4 5; do echo line $n; sleep 0.05; done
printf 'unfinished s3c'; sleep 0.6; echo ret-value done
exit 3
"""
OLD_KERNEL = """
import os, sys
from remuda.steps.process import kernel
from remuda.steps.__main__ import main
del os.pidfd_open
kernel._libc = object()
sys.exit(main())
"""
ALWAYS = "echo run >>always; echo status $CI_JOB_STATUS"


def talkative_job(a_job: Build) -> JobStart:
    steps = steps_text(
        {"name": "talk", "script": TALKATIVE},
        {"name": "never", "script": "echo run >>never"},
        {"name": "after", "script": ALWAYS, "if": "always()"},
    )
    variables = [JobVariable(key="SECRET", value="s3cret-value", masked=True)]
    return a_job(steps=steps, variables=variables, banner=["banner"])


def check_talkative(seen: Seen, work: Path) -> None:
    assert seen.lines == [
        *(f"line {number}".encode() for number in range(1, 6)),
        b"unfinished [MASKED] done",
        b"status failed",
    ]
    assert [line for line in seen.agent_lines if not line.startswith(b"section")] == [
        b"banner",
        b'ERROR: Job failed: step "talk": exit status 3',
    ]
    assert sum(line.startswith(b"section_start") for line in seen.agent_lines) == 2
    assert sum(line.startswith(b"section_end") for line in seen.agent_lines) == 2
    assert seen.statuses == {"talk": "failure", "never": "skipped", "after": "success"}
    assert [event["event"] for event in seen.results] == ["started", "finished", "finished", "started", "finished"]
    assert seen.check().exit_code == 3
    assert (work / "runs").read_text() == "run\n"
    assert (work / "always").read_text() == "run\n"
    assert not (work / "never").exists()


@pytest.mark.long
@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("agent.")])
async def test_killed_at_every_kill_point(tmp_path: Path, a_job: Build, point: str) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start(kill_point=point)
        first = agent.pid
        seen = await through_deaths(agent, talkative_job(a_job), kill_point=point)
        assert agent.pid != first
        check_talkative(seen, tmp_path / "work")
        stored = next((agent.data / "jobs").glob("*/log")).read_bytes()
        assert stored == seen.log


async def test_killed_again_and_again(tmp_path: Path, a_job: Build) -> None:
    rng = random.Random(4)
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        pauses = [rng.uniform(0.0, 0.15) for _ in range(8)]
        seen = await run_with_kills(agent, talkative_job(a_job), pauses)
        check_talkative(seen, tmp_path / "work")


async def test_works_on_an_old_kernel_without_inotify_and_pidfd(tmp_path: Path, a_job: Build) -> None:
    async with AgentProcess(tmp_path / "data", program=(sys.executable, "-c", OLD_KERNEL)) as agent:
        await agent.start(kill_point="agent.step_spawned")
        seen = await through_deaths(agent, talkative_job(a_job), kill_point="agent.step_spawned")
        check_talkative(seen, tmp_path / "work")


async def test_many_lines_survive_a_kill_byte_for_byte(agent: AgentProcess, a_job: Build) -> None:
    job = a_job(script="seq 1 200000")
    seen = Seen()
    async with agent.client() as client:
        await client.start(job)
        async with client.watch() as watch:
            await watch.subscribe(job.id)
            async for event in watch:
                if isinstance(event, LogChunk):
                    seen.log += event.data
                    if len(seen.log) > 500_000:
                        break
    await agent.kill()
    await agent.start()
    async with agent.client() as client:
        await follow(client, job.id, seen)
        whole = await follow(client, job.id)
    assert whole.log == seen.log
    assert whole.lines == [str(number).encode() for number in range(1, 200_001)]
    whole.check()


async def test_a_job_continues_without_an_agent(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    job = a_job(script=f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo went; touch {tmp_path}/done; exit 4")
    async with agent.client() as client:
        await client.start(job)
        await until(lambda: any((agent.data / "jobs").glob("*/step-0.pid")))
    await agent.stop()
    (tmp_path / "go").touch()
    await until((tmp_path / "done").exists)
    await agent.start()
    async with agent.client() as client:
        seen = await follow(client, job.id)
    assert seen.lines == [b"went"]
    assert seen.check().exit_code == 4


@pytest.mark.parametrize(
    ("origin", "reason", "fault", "log_text"),
    [
        ("compiled", "runner_system_failure", "runner", b"ERROR: Job failed (system failure): "),
        ("user", "script_failure", "user", b"ERROR: Job failed: the step's process ended"),
    ],
)
async def test_a_killed_shim_is_a_system_failure_unless_the_job_could_forge_it(
    agent: AgentProcess, a_job: Build, origin: str, reason: str, fault: str, log_text: bytes
) -> None:
    """The agent cannot know who killed the shim, and a job can kill the shim of its own step."""
    async with agent.client() as client:
        await client.start(a_job(steps=steps_text({"name": "it", "script": "sleep 60", "origin": origin})))
        await until(lambda: any((agent.data / "jobs").glob("*/step-0.pid")))
        pid_file = next((agent.data / "jobs").glob("*/step-0.pid"))
        await until(lambda: pid_file.read_text().endswith("\n"))
        os.killpg(int(pid_file.read_text().split()[0]), signal.SIGKILL)
        seen = await follow(client, "1")
    end = seen.check()
    assert (end.status, end.reason, end.exit_code) == ("failure", reason, -1)
    assert "ended without an exit code" in end.message
    assert seen.agent_lines[-1].startswith(log_text)
    assert seen.results[-1]["fault"] == fault


async def test_a_claim_that_was_never_completed_is_a_system_failure(tmp_path: Path, a_job: Build) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start(kill_point="agent.step_prepared")
        async with agent.client() as client:
            # The agent may be dead before it has sent its answer.
            with suppress(AgentUnavailableError):
                await client.start(a_job(script="touch ran"))
        await agent.wait()
        (next((agent.data / "jobs").glob("*")) / "step-0.pid").touch()
        await agent.start()
        async with agent.client() as client:
            seen = await follow(client, "1")
    assert seen.check().reason == "runner_system_failure"
    assert not (tmp_path / "work/ran").exists()


async def test_a_reused_process_number_is_not_the_step(agent: AgentProcess, a_job: Build) -> None:
    async with agent.client() as client:
        await client.start(a_job(script="sleep 60"))
        await until(lambda: any((agent.data / "jobs").glob("*/step-0.pid")))
    pid_file = next((agent.data / "jobs").glob("*/step-0.pid"))
    await until(lambda: pid_file.read_text().endswith("\n"))
    await agent.kill()
    os.killpg(int(pid_file.read_text().split()[0]), signal.SIGKILL)
    pid_file.write_text(f"{os.getpid()} 1\n")
    await agent.start()
    async with agent.client() as client:
        seen = await follow(client, "1")
    assert seen.check().reason == "runner_system_failure"


async def test_agent_survives_its_clients(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    job = a_job(script=f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo went")
    client = agent.client()
    await client.start(job)
    client.close()
    (tmp_path / "go").touch()
    async with agent.client() as other:
        assert (await follow(other, job.id)).lines == [b"went"]


async def test_client_learns_that_the_agent_is_gone(agent: AgentProcess, a_job: Build) -> None:
    async with agent.client() as client:
        await client.start(a_job(script="sleep 60"))
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow_until_lost(client, "1"))
            await agent.kill()
        assert following.result()


async def follow_until_lost(client: AgentClient, job_id: str) -> bool:
    with pytest.raises(AgentUnavailableError):
        await follow(client, job_id)
    return True


async def test_a_job_in_an_older_journal_format_ends_with_an_error(tmp_path: Path) -> None:
    """The journal has format 1. The log and the results stay as they were."""
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        await agent.stop()
        folder = agent.data / "jobs" / folder_name("7")
        folder.mkdir()
        (folder / "request").write_bytes(StartRequest(id="7", version=1, work_dir=str(tmp_path)).SerializeToString())
        (folder / "control").write_text('{"version":1,"event":"accepted","time":1.0}\n')
        (folder / "results").write_text('{"version":1,"seq":1,"event":"started","name":"a","path":"/a"}\n')
        log = b"2026-11-15T09:40:00.123456Z 00O hello\n"
        (folder / "log").write_bytes(log + b"not shown")
        (folder / "mark").write_bytes(struct.pack("<BBIQQQI", 1, 0, 2, 0, len(log), 0, crc32(log)))
        await agent.start()
        async with agent.client() as client:
            seen = await follow(client, "7")
    end = seen.check()
    assert (end.reason, end.results) == ("runner_system_failure", 1)
    assert "another version of the agent began this job" in end.message
    assert seen.log.startswith(log)
