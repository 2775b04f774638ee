"""Kills the agent or the engine during a job with a container: no process continues wrongly, and nothing is left."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text, through_deaths
from remuda.testing.waiting import until, wait_until
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
async def test_dead_agent_loses_nothing(engine: DockerEngine, agent: AgentProcess, tmp_path: Path, point: str) -> None:
    job = a_job(
        engine, tmp_path, {"name": "one", "script": "echo one >>ran"}, {"name": "two", "script": "echo two >>ran"}
    )
    await agent.start(kill_point=point)
    seen = await through_deaths(agent, job)
    assert seen.end is not None
    assert seen.end.status == "success", seen.log.decode()
    assert (tmp_path / "work/ran").read_text() == "one\ntwo\n"
    assert (engine.containers(), engine.networks()) == ([], [])


async def test_restarted_agent_finds_its_command(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
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


async def test_always_steps_run_after_a_cancel(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
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


async def test_next_job_sweeps_one_closed_as_it_ran(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
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


async def test_no_call_of_machine_steps_from_inside(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
    """The container limits the job: steps inside of it must not start programs on the machine."""
    inputs = {"folder": str(tmp_path / "stolen"), "key": "k", "paths": ["."]}
    out = {"name": "out", "step": "builtin://cache_save", "inputs": inputs, "origin": "user"}
    await agent.start()
    seen = await run_job(agent, a_job(engine, tmp_path, out, origin="compiled"))
    assert seen.statuses["out"] == "failure"
    assert not (tmp_path / "stolen").exists()
    assert b"outside" in seen.log
    assert (engine.containers(), engine.networks()) == ([], [])


async def test_environment_over_os_limit_is_started(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
    job = a_job(engine, tmp_path, {"name": "large", "script": "echo ${#LARGE} $SMALL"})
    variables = [JobVariable(key="LARGE", value="x" * 200_000), JobVariable(key="SMALL", value="small")]
    await agent.start()
    seen = await run_job(agent, JobStart(id="1", work_dir=job.work_dir, steps=job.steps, variables=variables))
    assert b"200000 small" in seen.lines, seen.log.decode()[-2000:]
    assert any(b"known to the script's shell only: LARGE" in line for line in seen.agent_lines)


def test_dead_engine_is_system_failure_leaving_nothing(own_engine: DockerEngine, new_job: Callable[..., Any]) -> None:
    job = new_job(own_engine)
    started = job.step("service", image=BUSYBOX, pull_policy=["never"], command=["sleep", "1000"], alias=["db"])
    assert started.code == 0, started.text
    opened = job.open(network="job")
    process = job.begin(opened, "sh", "-c", "echo begun; sleep 1000")
    assert process.stdout.readline() == "begun\n"
    own_engine.kill()
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert text.startswith("ERROR: the container engine at unix:///")
    assert "The command was running at that time" in text
    assert job.failure["fault"] == "platform"
    assert len(own_engine.container_pids()) == 3  # two containers and the command do not need the engine to run on
    closed = job.close()
    assert closed.code == 0, closed.text
    assert "The processes of 1 container(s) of this job were killed without the engine" in closed.text
    wait_until(lambda: len(own_engine.container_pids()) == 1)
    stopped = job.step("service_stop")
    assert stopped.code == 0, stopped.text
    wait_until(lambda: own_engine.container_pids() == [])
    own_engine.start()
    wait_until(lambda: [container["Labels"]["remuda.role"] for container in own_engine.containers()] == ["service"])
    # The next job removes the service that the engine still has.
    for path in (job.exchange / name.name for name in Path(job.exchange).iterdir()):
        path.unlink()
    job.exchange.rmdir()
    following = new_job(own_engine, "2")
    assert "left behind" in following.open().text
    assert following.close().code == 0
    assert (own_engine.containers(), own_engine.networks()) == ([], [])


def test_container_without_mark_is_ended_without_engine(own_engine: DockerEngine, new_job: Callable[..., Any]) -> None:
    """The container's first process has another environment, and the working directory has another path inside."""
    job = new_job(own_engine)
    hide = f'cd / && mv {"/".join(job.work.parts[:3])[1:]} /moved && exec env -i "$@"'
    opened = job.open(entrypoint=["sh", "-c", hide, "sh"])
    assert opened.code == 0, opened.text
    own_engine.kill()
    closed = job.close()
    assert "The processes of 1 container(s) of this job were killed without the engine" in closed.text
    wait_until(lambda: own_engine.container_pids() == [])


def test_a_paused_container_is_ended_without_the_engine(own_engine: DockerEngine, new_job: Callable[..., Any]) -> None:
    """A job on hold has a paused container. With cgroups of version 1 a signal does not end a frozen process."""
    job = new_job(own_engine)
    assert job.open().code == 0
    assert job.step("container_pause").code == 0
    own_engine.kill()
    closed = job.close()
    assert "The processes of 1 container(s) of this job were killed without the engine" in closed.text
    wait_until(lambda: own_engine.container_pids() == [])


def test_engine_comes_back_while_a_container_is_closed(own_engine: DockerEngine, new_job: Callable[..., Any]) -> None:
    job = new_job(own_engine)
    assert job.open().code == 0
    own_engine.kill()
    own_engine.start()
    closed = job.close()
    assert closed.code == 0, closed.text
    assert own_engine.containers() == []


def test_closing_warns_without_engine_and_right_to_kill(own_engine: DockerEngine, new_job: Callable[..., Any]) -> None:
    job = new_job(own_engine)
    job.host = "tcp://127.0.0.1:1"
    closed = job.close()
    assert closed.code == 75
    assert "may still run" in closed.text
