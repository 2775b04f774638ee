"""Steps that a policy inserts around a job in a container run on the machine; the container cannot change them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine
from tests.support.step_files import write_step

from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart, JobVariable
from remuda.wire.agent_shell import ShellCommand, ShellExit, open_shell

EXCHANGE = "$(dirname $REMUDA_OUTPUTS)"


def a_job(engine: DockerEngine, folder: Path, script: str, audit: dict[str, Any], **values: Any) -> JobStart:
    """A job in a container, as the manager compiles it, with a policy that inserts a step after it."""
    inputs = {"image": BUSYBOX, "pull_policy": ["never"], "engine": engine.host}
    steps = [{"name": "in", "script": script}]
    box = {"name": "box", "step": "builtin://container", "origin": "compiled", "inputs": inputs, "run": steps}
    document = {"insert": [{"name": "audit", "after": "job", "env": {"FILE": "${{ vars.FILE }}"}} | audit]}
    policy = {"version": 1, "layers": [{"author": "runner r", "document": document}]}
    (folder / "work").mkdir()
    return JobStart(id="1", work_dir=str(folder / "work"), steps=steps_text(box), policy=json.dumps(policy), **values)


async def test_inserted_step_ignores_exchanged_links(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    script = f"""
        for step in 0 1 2 3 4 5 6 7 8 9; do for kind in outputs exports masks home; do
            ln -s {tmp_path}/marks/$step.$kind {EXCHANGE}/step-$step.$kind
        done; done
        rm $REMUDA_OUTPUTS $REMUDA_EXPORTS $REMUDA_MASKS
        echo of the job >$FILE
    """
    output = json.dumps({"name": "checked", "value": "yes"})
    audit = f"echo '{output}' | tee -a $REMUDA_OUTPUTS >>$REMUDA_EXPORTS; echo secret >>$REMUDA_MASKS; cat $FILE"
    variables = (JobVariable(key="FILE", value="of the project\n", file=True),)
    seen = await run_job(agent, a_job(engine, tmp_path, script, {"script": audit}, variables=variables))
    assert seen.check().status == "success", seen.log.decode()
    assert list((tmp_path / "marks").iterdir()) == []
    [event] = [result for result in seen.results if result["event"] == "finished" and result["path"] == "/audit"]
    assert event["outputs"] == {"checked": "yes"}
    assert b"of the project" in seen.lines
    assert b"of the job" not in seen.lines


FORGE = """
while :; do for file in %s/*.script; do
    ! grep -q AUDIT $file || echo 'echo FORGED' >$file
done; done
"""


@pytest.mark.parametrize("is_package", [False, True], ids=["script", "container"])
async def test_a_container_that_is_still_open_changes_no_inserted_step(
    engine: DockerEngine, agent: AgentProcess, tmp_path: Path, is_package: bool
) -> None:
    """A failed job on hold keeps its container. The inserted step runs on the machine or in its own container."""
    audit: dict[str, Any] = {"script": "echo AUDITED by $(cat $FILE)"}
    if is_package:
        inputs = {"image": BUSYBOX, "pull_policy": ["never"], "engine": engine.host}
        inner = {"name": "in", "script": f"{audit['script']}; echo done >>$REMUDA_MASKS"}
        box = {"name": "box", "step": "builtin://container", "inputs": inputs, "run": [inner]}
        write_step(tmp_path / "package", {"run": [box]})
        audit = {"step": str(tmp_path / "package")}
    script = f"({FORGE % EXCHANGE}) >/dev/null 2>&1 & exit 3"
    variables = (JobVariable(key="FILE", value="hand\n", file=True),)
    job = a_job(engine, tmp_path, script, audit, hold_failed_seconds=3, variables=variables)
    seen = await run_job(agent, job)
    assert seen.check().exit_code == 3, seen.log.decode()
    assert b"AUDITED by hand" in seen.lines, seen.log.decode()
    assert b"FORGED" not in seen.lines


async def test_held_container_is_paused_for_steps(engine: DockerEngine, agent: AgentProcess, tmp_path: Path) -> None:
    """The container has the working directory, in which steps on the machine work with more rights."""
    script = "(while :; do date +%N; usleep 1000; done >count) & until [ -s count ]; do usleep 1000; done; exit 3"
    audit = {"script": "first=$(stat -c %s count); sleep 0.5; echo grew by $(($(stat -c %s count) - first))"}
    job = a_job(engine, tmp_path, script, audit | {"env": {}}, hold_failed_seconds=600)
    async with agent.client() as client:
        await client.start(job)
        seen = await follow(client, "1")
        assert (seen.check().exit_code, seen.lines[-1:]) == (3, [b"grew by 0"]), seen.log.decode()
        size = (tmp_path / "work/count").stat().st_size
        async with open_shell(client, "1", ShellCommand(command=("echo", "looked"), terminal=False)) as shell:
            events = [event async for event in shell]
        assert ShellExit(0) in events
        await until(lambda: (tmp_path / "work/count").stat().st_size > size)
        await client.close_job("1")
    assert engine.containers() == []
