"""A container on a machine that is reached over SSH: steps in two nested environments, with all results in one tree."""

import json
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.ssh_machine import SshMachine
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine
from tests.support.step_files import write_step

from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart


@pytest.fixture
def machine(engine: DockerEngine) -> Iterator[SshMachine]:
    """An SSH server in the engine's network."""
    if missing := SshMachine.missing():
        pytest.skip(missing)
    with SshMachine(engine.network_prefix) as machine:
        yield machine


@pytest.fixture
async def local_agent(tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """The local agent. A second agent runs on the machine; only its proxy leads to it."""
    async with AgentProcess(tmp_path / "remote") as remote, AgentProcess(tmp_path / "local") as local:
        await remote.start()
        await local.start()
        yield local


def a_job(machine: SshMachine, engine: DockerEngine, folder: Path, *inner: dict[str, Any]) -> JobStart:
    """A job with a step that opens the machine; in it a step that opens a container; in it the `inner` steps."""
    work = folder / "work"
    package = work / "machine"
    proxy_command = machine.command(
        *map(shlex.quote, (sys.executable, "-m", "remuda.steps", "proxy", "--data", f"{folder}/remote"))
    )
    environment_line = json.dumps({"name": "environment", "value": {"agent": proxy_command}})
    command = ["sh", "-c", 'cat "$1" >>"$2"', "sh", "${{ func_dir }}/environment", "${{ output_file }}"]
    definition = {"environment": {"open": {"command": command}, "close": {"command": ["true"]}}}
    write_step(package, definition)
    (package / "environment").write_text(f"{environment_line}\n")
    inputs = {"image": BUSYBOX, "pull_policy": ["never"], "engine": engine.host}
    box = {"name": "box", "step": "builtin://container", "inputs": inputs, "run": list(inner)}
    steps = steps_text({"name": "machine", "step": "./machine", "run": [box]}, {"name": "after", "script": "cat made"})
    return JobStart(id="1", work_dir=str(work), steps=steps)


async def test_a_container_on_a_machine_reached_over_ssh(
    machine: SshMachine, engine: DockerEngine, local_agent: AgentProcess, tmp_path: Path
) -> None:
    inner = {"name": "hello", "script": 'test ! -e /etc/debian_version; echo "made in a container" | tee made'}
    seen = await run_job(local_agent, a_job(machine, engine, tmp_path, inner))
    assert seen.end is not None
    assert seen.end.status == "success", seen.log.decode()
    statuses = {event["path"]: event["status"] for event in seen.results if event["event"] == "finished"}
    assert statuses["/machine/box/hello"] == statuses["/machine/box"] == statuses["/machine"] == "success"
    assert seen.lines.count(b"made in a container") == 2
    assert engine.containers() == []


async def test_a_failure_two_levels_down_is_the_jobs_and_leaves_nothing(
    machine: SshMachine, engine: DockerEngine, local_agent: AgentProcess, tmp_path: Path
) -> None:
    seen = await run_job(local_agent, a_job(machine, engine, tmp_path, {"name": "fails", "script": "exit 7"}))
    assert seen.end is not None
    assert (seen.end.status, seen.end.exit_code) == ("failure", 7), seen.log.decode()
    assert engine.containers() == []


async def test_cancelling_reaches_two_levels_down(
    machine: SshMachine, engine: DockerEngine, local_agent: AgentProcess, tmp_path: Path
) -> None:
    job = a_job(machine, engine, tmp_path, {"name": "long", "script": "touch up; sleep 1000"})
    async with local_agent.client() as client:
        await client.start(job)
        await until((tmp_path / "work/up").exists)
        await client.cancel("1")
        seen = await follow(client, "1")
    assert seen.check().status == "cancelled"
    assert engine.containers() == []
