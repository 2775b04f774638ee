"""A container on a machine that is reached over SSH: steps two environments deep, their results in one tree."""

import json
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.ssh_machine import SshMachine
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart


@pytest.fixture
def machine(engine: DockerEngine) -> Iterator[SshMachine]:
    """In the engine's network."""
    if missing := SshMachine.missing():
        pytest.skip(missing)
    with SshMachine(engine.inside) as machine:
        yield machine


@pytest.fixture
async def agents(tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """The agent here, and one there that only its proxy leads to."""
    async with AgentProcess(tmp_path / "there") as there, AgentProcess(tmp_path / "here") as here:
        await there.start()
        await here.start()
        yield here


def a_job(machine: SshMachine, engine: DockerEngine, folder: Path, *inner: dict[str, Any]) -> JobStart:
    """A step that leads to the machine, in it one that makes a container, in it these."""
    work = folder / "work"
    package = work / "machine"
    package.mkdir(parents=True)
    way = machine.command(
        *map(shlex.quote, (sys.executable, "-m", "remuda.steps", "proxy", "--data", f"{folder}/there"))
    )
    told = json.dumps({"name": "environment", "value": {"agent": way}})
    (package / "told").write_text(f"{told}\n")
    command = ["sh", "-c", 'cat "$1" >>"$2"', "sh", "${{ func_dir }}/told", "${{ output_file }}"]
    definition = {"environment": {"open": {"command": command}, "close": {"command": ["true"]}}}
    (package / "func.yml").write_text(f"{json.dumps({'spec': {'remuda': 1}})}\n---\n{json.dumps(definition)}\n")
    inputs = {"image": BUSYBOX, "pull_policy": ["never"], "engine": engine.host}
    box = {"name": "box", "step": "builtin://container", "inputs": inputs, "run": list(inner)}
    steps = steps_text({"name": "machine", "step": "./machine", "run": [box]}, {"name": "after", "script": "cat made"})
    return JobStart(id="1", work_dir=str(work), steps=steps)


async def test_a_container_on_a_machine_reached_over_ssh(
    machine: SshMachine, engine: DockerEngine, agents: AgentProcess, tmp_path: Path
) -> None:
    inner = {"name": "hello", "script": 'test ! -e /etc/debian_version; echo "made in a container" | tee made'}
    seen = await run_job(agents, a_job(machine, engine, tmp_path, inner))
    assert seen.end is not None
    assert seen.end.status == "success", seen.log.decode()
    ended = {event["path"]: event["status"] for event in seen.results if event["event"] == "finished"}
    assert ended["/machine/box/hello"] == ended["/machine/box"] == ended["/machine"] == "success"
    assert seen.lines.count(b"made in a container") == 2
    assert engine.containers() == []


async def test_a_failure_two_levels_down_is_the_jobs_and_leaves_nothing(
    machine: SshMachine, engine: DockerEngine, agents: AgentProcess, tmp_path: Path
) -> None:
    seen = await run_job(agents, a_job(machine, engine, tmp_path, {"name": "fails", "script": "exit 7"}))
    assert seen.end is not None
    assert (seen.end.status, seen.end.exit_code) == ("failure", 7), seen.log.decode()
    assert engine.containers() == []


async def test_cancelling_reaches_two_levels_down(
    machine: SshMachine, engine: DockerEngine, agents: AgentProcess, tmp_path: Path
) -> None:
    job = a_job(machine, engine, tmp_path, {"name": "long", "script": "touch up; sleep 1000"})
    async with agents.client() as client:
        await client.start(job)
        await until((tmp_path / "work/up").exists)
        await client.cancel("1")
        seen = await follow(client, "1")
    assert seen.check().status == "cancelled"
    assert engine.containers() == []
