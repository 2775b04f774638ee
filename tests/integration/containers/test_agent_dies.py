"""Kills the agent while a job has a container: the job continues, each command runs once, and no container is left."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text, through_deaths
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart, JobVariable

pytestmark = pytest.mark.long


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(tmp_path / "data") as process:
        yield process


def a_job(
    engine: DockerEngine, folder: Path, *inner: dict[str, Any], job_id: str = "1", origin: str = "user"
) -> JobStart:
    common = {"image": BUSYBOX, "pull_policy": ["never"], "engine": engine.host}
    service = {"name": "db", "step": "builtin://service", "inputs": common | {"command": ["sleep", "1000"]}}
    container = {
        "name": "box",
        "step": "builtin://container",
        "inputs": common | {"network": "job"},
        "run": list(inner),
        "origin": origin,
    }
    stop = {"name": "stop", "step": "builtin://service_stop", "inputs": {"engine": engine.host}, "if": "always()"}
    return JobStart(id=job_id, work_dir=str(folder / "work"), steps=steps_text(service, container, stop))


@pytest.mark.parametrize("point", ["agent.step_prepared", "agent.step_spawned", "agent.step_exited"])
async def test_an_agent_that_dies_loses_nothing(
    engine: DockerEngine, agent: AgentProcess, tmp_path: Path, point: str
) -> None:
    job = a_job(
        engine, tmp_path, {"name": "one", "script": "echo one >>ran"}, {"name": "two", "script": "echo two >>ran"}
    )
    await agent.start(kill_point=point)
    seen = await through_deaths(agent, job)
    assert seen.end is not None
    assert seen.end.status == "success", seen.log.decode()
    assert (tmp_path / "work/ran").read_text() == "one\ntwo\n"
    assert (engine.containers(), engine.networks()) == ([], [])


async def test_an_agent_that_dies_while_a_command_runs_finds_it_again(
    engine: DockerEngine, agent: AgentProcess, tmp_path: Path
) -> None:
    job = a_job(
        engine,
        tmp_path,
        {"name": "long", "script": "echo begun; touch up; while [ ! -e go ]; do sleep 0.1; done; echo gone"},
    )
    await agent.start()
    async with agent.client() as client:
        await client.start(job)
        await until((tmp_path / "work/up").exists)
    await agent.kill()
    await agent.start()
    (tmp_path / "work/go").touch()
    async with agent.client() as client:
        seen = await follow(client, "1")
    assert seen.check().status == "success"
    assert [line for line in seen.lines if line in (b"begun", b"gone")] == [b"begun", b"gone"]
    assert engine.containers() == []


async def test_cancel_ends_the_command_and_always_steps_still_run(
    engine: DockerEngine, agent: AgentProcess, tmp_path: Path
) -> None:
    long = {"name": "long", "script": "touch up; sleep 1000"}
    after = {
        "name": "after",
        "script": "echo after; ! ps -o args | grep -v grep | grep -q 'sleep 100[0]$' || exit 9",
        "if": "always()",
    }
    await agent.start()
    async with agent.client() as client:
        await client.start(a_job(engine, tmp_path, long, after))
        await until((tmp_path / "work/up").exists)
        await client.cancel("1")
        seen = await follow(client, "1")
    assert seen.check().status == "cancelled"
    assert seen.statuses["after"] == "success", seen.log.decode()
    assert (engine.containers(), engine.networks()) == ([], [])


async def test_a_job_that_is_closed_while_it_runs_is_swept_by_the_next(
    engine: DockerEngine, agent: AgentProcess, tmp_path: Path
) -> None:
    await agent.start()
    async with agent.client() as client:
        await client.start(a_job(engine, tmp_path, {"name": "long", "script": "touch up; sleep 1000"}))
        await until((tmp_path / "work/up").exists)
        await client.close_job("1")
    job = a_job(engine, tmp_path / "next", {"name": "short", "script": "true"}, job_id="2")
    seen = await run_job(agent, job)
    assert seen.end is not None
    assert seen.end.status == "success", seen.log.decode()
    assert b"left behind" in seen.log
    assert (engine.containers(), engine.networks()) == ([], [])


async def test_steps_of_the_machine_cannot_be_called_from_inside(
    engine: DockerEngine, agent: AgentProcess, tmp_path: Path
) -> None:
    """The container limits the job: steps inside of it must not start programs on the machine."""
    inputs = {"folder": str(tmp_path / "stolen"), "key": "k", "paths": ["."]}
    out = {"name": "out", "step": "builtin://cache_save", "inputs": inputs, "origin": "user"}
    await agent.start()
    seen = await run_job(agent, a_job(engine, tmp_path, out, origin="compiled"))
    assert seen.statuses["out"] == "failure"
    assert not (tmp_path / "stolen").exists()
    assert b"outside" in seen.log
    assert (engine.containers(), engine.networks()) == ([], [])


async def test_environment_over_the_os_limit_still_starts(
    engine: DockerEngine, agent: AgentProcess, tmp_path: Path
) -> None:
    job = a_job(engine, tmp_path, {"name": "large", "script": "echo ${#LARGE} $SMALL"})
    variables = [JobVariable(key="LARGE", value="x" * 200_000), JobVariable(key="SMALL", value="small")]
    await agent.start()
    seen = await run_job(agent, JobStart(id="1", work_dir=job.work_dir, steps=job.steps, variables=variables))
    assert b"200000 small" in seen.lines, seen.log.decode()[-2000:]
    assert any(b"known to the script's shell only: LARGE" in line for line in seen.agent_lines)
