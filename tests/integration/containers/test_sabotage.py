"""What a container puts in the place of files of later steps fails its own job, and neither the agent nor others."""

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
    "put",
    [
        "mkfifo $it.outputs $it.exports $it.masks",
        "mkdir $it.inputs",
        "mkdir -p $it.inputs/full $it.outputs/full",
        "mkdir -p $it.tmp/full",
        "mkfifo $it.tmp",
        "ln -s {place}/marks $it.tmp",
        "ln -s {place}/marks/file $it.outputs",
    ],
)
async def test_what_is_in_the_place_of_a_later_steps_files_fails_the_job(
    engine: DockerEngine, open_agent: AgentProcess, place: Path, put: str
) -> None:
    """Standard steps run as the job's user, and have their files where the container is root."""
    (place / "marks").mkdir()
    script = f"cd $(dirname $REMUDA_OUTPUTS); for n in 4 5 6 7; do it=step-$n; {put.format(place=place)}; done"
    inputs: dict[str, Any] = {"image": BUSYBOX, "pull_policy": ["never"], "engine": engine.host}
    box = {"name": "box", "step": "builtin://container", "inputs": inputs, "run": [{"name": "in", "script": script}]}
    save = {"name": "save", "step": "builtin://secrets", "inputs": {"secrets": {}}, "if": "always()"}
    steps = steps_text(*(one | {"origin": "compiled"} for one in (box, save)))
    async with asyncio.timeout(60):
        seen = await run_job(open_agent, JobStart(id="1", work_dir=str(place / "work"), steps=steps, run_as=str(UID)))
    assert (seen.check().status, seen.check().reason) == ("failure", "script_failure"), seen.log.decode()
    assert seen.statuses["save"] == "failure"
    assert "the job has put something else there" in seen.check().message, json.dumps(seen.results, indent=1)
    assert list((place / "marks").iterdir()) == []
    assert engine.containers() == []
    await run_job(
        open_agent, JobStart(id="2", work_dir=str(place / "work"), steps=steps_text({"name": "a", "script": ":"}))
    )
