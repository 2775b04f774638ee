"""A container replaces files of later steps: only its own job fails; the agent and other jobs continue."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

from remuda.testing.agent_process import AgentProcess, run_job, steps_text
from remuda.wire.agent_client import JobStart

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
UID = 123456


@pytest.mark.parametrize(
    "attack",
    [
        "mkfifo $it.outputs $it.exports $it.masks",
        "mkdir $it.inputs",
        "mkdir -p $it.inputs/full $it.outputs/full",
        "mkdir -p $it.tmp/full",
        "mkfifo $it.tmp",
        "ln -s {public_folder}/marks $it.tmp",
        "ln -s {public_folder}/marks/file $it.outputs",
    ],
)
async def test_replaced_files_of_a_later_step_fail_the_job(
    engine: DockerEngine, open_agent: AgentProcess, public_folder: Path, attack: str
) -> None:
    """Standard steps run as the job's user. Their files are in a folder where the container is root."""
    (public_folder / "marks").mkdir()
    command = attack.format(public_folder=public_folder)
    script = f"cd $(dirname $REMUDA_OUTPUTS); for n in 4 5 6 7; do it=step-$n; {command}; done"
    inputs: dict[str, Any] = {"image": BUSYBOX, "pull_policy": ["never"], "engine": engine.host}
    box = {"name": "box", "step": "builtin://container", "inputs": inputs, "run": [{"name": "in", "script": script}]}
    save = {"name": "save", "step": "builtin://secrets", "inputs": {"secrets": {}}, "if": "always()"}
    steps = steps_text(*(entry | {"origin": "compiled"} for entry in (box, save)))
    async with asyncio.timeout(60):
        seen = await run_job(
            open_agent, JobStart(id="1", work_dir=str(public_folder / "work"), steps=steps, run_as=str(UID))
        )
    assert (seen.check().status, seen.check().reason) == ("failure", "script_failure"), seen.log.decode()
    assert seen.statuses["save"] == "failure"
    assert "the job has put something else there" in seen.check().message, json.dumps(seen.results, indent=1)
    assert list((public_folder / "marks").iterdir()) == []
    assert engine.containers() == []
    await run_job(
        open_agent,
        JobStart(id="2", work_dir=str(public_folder / "work"), steps=steps_text({"name": "a", "script": ":"})),
    )
