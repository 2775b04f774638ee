"""A shell in a job's container, by the engine's exec: while the job runs, and while the failed job is on hold."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

from remuda.testing.agent_process import AgentProcess, follow, steps_text, through_deaths
from remuda.testing.lab import ADMIN_TOKEN, Lab
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentClient, AgentRefusedError, JobStart, JobVariable
from remuda.wire.agent_shell import AgentShell, ShellCommand, ShellData, ShellExit, open_shell


def a_job(engine: DockerEngine, folder: Path, script: str, inputs: Mapping[str, Any] = {}, **values: Any) -> JobStart:
    """`inputs`: more inputs of the job's container."""
    common = {"image": BUSYBOX, "pull_policy": ["never"], "engine": engine.host}
    service = {"name": "db", "step": "builtin://service", "inputs": common | {"command": ["sleep", "1000"]}}
    container = {
        "name": "box",
        "step": "builtin://container",
        "inputs": common | {"network": "job"} | dict(inputs),
        "run": [{"name": "own", "script": script, "origin": "user"}],
        "origin": "compiled",
    }
    last = {"name": "last", "script": "touch last", "if": "always()"}
    stop = {"name": "stop", "step": "builtin://service_stop", "inputs": {"engine": engine.host}, "if": "always()"}
    variables = [JobVariable(key="SECRET", value="s3cret"), JobVariable(key="KEY", value="of the file", file=True)]
    steps = steps_text(service, container, last, stop)
    return JobStart(id="1", work_dir=str(folder / "work"), steps=steps, variables=variables, **values)


async def run(client: AgentClient, *command: str, feed: bytes = b"") -> tuple[int, bytes, bytes]:
    async with open_shell(client, "1", ShellCommand(command=command, terminal=False)) as shell:
        await shell.write(feed)
        await shell.end_input()
        output, errors = b"", b""
        async for event in shell:
            match event:
                case ShellData(data, is_error):
                    output, errors = output + (b"" if is_error else data), errors + data * is_error
                case ShellExit(code):
                    return code, output, errors
    raise AssertionError


async def read_until(shell: AgentShell, text: bytes) -> bytes:
    output = b""
    async with asyncio.timeout(30):
        async for event in shell:
            if isinstance(event, ShellData):
                output += event.data
            if text in output:
                return output
    raise AssertionError(output)


async def test_shell_in_container_of_a_running_job(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
    async with agent.client() as client:
        await client.start(a_job(engine, tmp_path, "touch up; while [ ! -e go ]; do sleep 0.1; done"))
        await until((tmp_path / "work/up").exists)
        command = 'pwd; echo $SECRET; cat "$KEY"; ls /bin/busybox; cat; echo no >&2; exit 5'
        code, output, errors = await run(client, "sh", "-c", command, feed=b"sent\0\n")
        assert (code, errors) == (5, b"no\n")
        assert output == f"{tmp_path}/work\ns3cret\nof the file/bin/busybox\nsent\0\n".encode()
        async with open_shell(client, "1", ShellCommand(columns=91, rows=31)) as shell:
            await shell.write(b"stty size; tr '\\0' '\\n' </proc/1/cmdline; sleep 1234 & echo re''ady\n")
            text = await read_until(shell, b"ready\r\n")
            assert b"31 91" in text
            await shell.resize(77, 33)
            await shell.write(b"sleep 0.3; stty size\n")
            await read_until(shell, b"33 77\r\n")

        # The client is gone, so all processes that it started there must end.
        async def is_gone() -> bool:
            return b"1234" not in (await run(client, "ps", "-o", "args"))[1]

        await until(is_gone)
        (tmp_path / "work/go").touch()
        seen = await follow(client, "1")
        assert seen.check().status == "success", seen.log.decode()
    assert (engine.containers(), engine.networks()) == ([], [])


@pytest.mark.long
@pytest.mark.parametrize("killed_at", ["", "afterwards", "agent.put_off", "agent.held"])
async def test_failed_job_keeps_container_and_services(
    engine: DockerEngine, agent: AgentProcess, tmp_path: Path, killed_at: str
) -> None:
    await agent.stop()
    await agent.start(kill_point=killed_at if "." in killed_at else "")
    seen = await through_deaths(agent, a_job(engine, tmp_path, "echo here >/made; exit 3", hold_failed_seconds=600))
    assert (seen.check().status, seen.check().exit_code) == ("failure", 3)
    assert seen.check().held_seconds
    assert seen.statuses["last"] == "success"
    assert (tmp_path / "work/last").exists()
    if killed_at == "afterwards":
        await agent.kill()
        await agent.start()
    async with agent.client() as client:
        assert await run(client, "cat", "/made") == (0, b"here\n", b"")
        code, output, _ = await run(client, "sh", "-c", 'cat "$KEY"')
        assert (code, output) == (0, b"of the file")
        assert len(engine.containers()) == 2
        await client.close_job("1")
    assert (engine.containers(), engine.networks()) == ([], [])


async def test_no_shell_while_an_entrypoint_prepares(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
    """Otherwise the shell would run on the machine, as the agent's user."""
    wait = f"touch {tmp_path}/work/up; until [ -e {tmp_path}/work/go ]; do sleep 0.1; done"
    entrypoint = ["sh", "-c", f'{wait}; exec "$@"', "sh"]
    inputs = {"entrypoint": entrypoint, "entrypoint_patience_seconds": 60}
    async with agent.client() as client:
        await client.start(a_job(engine, tmp_path, "true", inputs))
        await until((tmp_path / "work/up").exists)
        with pytest.raises(AgentRefusedError, match=r"environment \(box\) is not open yet"):
            await run(client, "touch", str(tmp_path / "outside"))
        (tmp_path / "work/go").touch()
        assert (await follow(client, "1")).check().status == "success"
    assert not (tmp_path / "outside").exists()


async def test_no_shell_in_held_job_and_no_container(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
    job = a_job(engine, tmp_path, "true", {"image": "no-such-image:none"}, hold_failed_seconds=600)
    async with agent.client() as client:
        await client.start(job)
        assert (await follow(client, "1")).check().held_seconds
        with pytest.raises(AgentRefusedError, match="its environment was not opened"):
            await run(client, "touch", str(tmp_path / "outside"))
        await client.close_job("1")
    assert not (tmp_path / "outside").exists()


async def test_no_shell_in_the_container_of_a_hook(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
    """The checkout follows. It has the agent's rights and works on files that a shell there could change."""
    inputs = {"image": BUSYBOX, "pull_policy": ["never"], "engine": engine.host}
    box = {"step": "builtin://container", "inputs": inputs, "origin": "compiled"}
    wait = "touch up; while [ ! -e go ]; do sleep 0.1; done"
    hook = {"name": "pre_get_sources_script", "script": wait, "origin": "compiled"}
    own = {"name": "own", "script": "true", "origin": "user"}
    steps = steps_text(box | {"name": "pre_get_sources", "run": [hook]}, box | {"name": "container", "run": [own]})
    async with agent.client() as client:
        await client.start(JobStart(id="1", work_dir=str(tmp_path / "work"), steps=steps))
        await until((tmp_path / "work/up").exists)
        with pytest.raises(AgentRefusedError, match=r"environment \(container\) is not open yet"):
            await run(client, "true")
        (tmp_path / "work/go").touch()
        assert (await follow(client, "1")).check().status == "success"


async def test_container_is_removed_after_the_hold(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
    async with agent.client() as client:
        await client.start(a_job(engine, tmp_path, "exit 3", hold_failed_seconds=2))
        assert (await follow(client, "1")).check().held_seconds
        await until(lambda: not engine.containers())
        await until(lambda: not engine.networks())
        assert "1" in (await client.hello()).jobs


async def test_unpausable_container_is_not_kept(own_engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
    """The container would change the working directory while the last steps work there."""
    async with agent.client() as client:
        await client.start(a_job(own_engine, tmp_path, "touch up; sleep 1000", hold_failed_seconds=600))
        await until((tmp_path / "work/up").exists)
        own_engine.kill()
        seen = await follow(client, "1")
        assert b"WARNING: the container is not kept for debugging: it cannot be paused" in seen.agent_lines
        assert b"The processes of 1 container(s) of this job were killed without the engine" in seen.log
        await client.close_job("1")


FAILS = f"""
broken:
  image: {BUSYBOX}
  services: [{{name: {BUSYBOX}, alias: db, command: [sh, -c, 'while :; do nc -l -p 8000 -e echo hello; done']}}]
  variables: {{HOW: well}}
  script: [echo here >/made, exit 3]
  after_script: [echo after >>/made]
"""


def test_user_opens_a_shell_in_the_container_of_a_failed_job(engine: DockerEngine, tmp_path: Path) -> None:
    """The whole chain: the command line, a cell, a manager with the docker executor, its agent, and a real engine."""
    with Lab(tmp_path / "lab") as lab:
        lab.manager.stop()
        config = lab.config.read_text().replace('"shell"', '"docker"')
        docker = f'[runners.docker]\nimage = "{BUSYBOX}"\nhost = "{engine.host}"\npull_policy = "never"\n'
        lab.config.write_text(f'{config}\n{docker}[runners.remuda]\nhold_failed = "10m"\n')
        lab.manager.start()
        project = lab.call("POST", "/api/v4/projects", {"name": "app"})["id"]
        actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": FAILS}]
        commit = {"branch": "main", "commit_message": "First", "actions": actions}
        lab.call("POST", f"/api/v4/projects/{project}/repository/commits", commit)

        def held_jobs() -> Any:
            return lab.call("GET", "/api/remuda/v1/jobs?held=true")

        lab.wait_until(held_jobs, "the job is held")
        job = str(held_jobs()[0]["id"])
        variables = dict(os.environ) | {"REMUDA_URL": lab.url, "REMUDA_TOKEN": ADMIN_TOKEN, "HOME": str(lab.home)}

        def remuda(*arguments: str) -> tuple[int, bytes]:
            command = [sys.executable, "-m", "remuda", "job", *arguments]
            process = subprocess.run(command, stdin=DEVNULL, capture_output=True, env=variables, timeout=60)
            return process.returncode, process.stdout

        result = remuda("shell", job, "--", "sh", "-c", "cat /made; nc db 8000; echo $HOW; exit 4")
        assert result == (4, b"here\nafter\nhello\nwell\n")
        assert len(engine.containers()) == 2
        assert remuda("release", job)[0] == 0
        lab.wait_until(lambda: not engine.containers() and not engine.networks(), "everything is gone")
        lab.wait_until(lambda: not held_jobs(), "the cell knows it")
