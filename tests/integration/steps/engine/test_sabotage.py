"""A job damages the agent's files of the job itself, which it can reach as the same user: only this job ends."""

import asyncio
import sys
from pathlib import Path

import pytest
from tests.support.step_jobs import Build

from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobEnded, JobVariable

FOLDER = 'folder=$(dirname "$(dirname "$REMUDA_OUTPUTS")"); '
NEST = "import os; [(os.mkdir('a'), os.chdir('a')) for _ in range(1500)]"
NESTED = f'cd "$(dirname "$REMUDA_OUTPUTS")"; {sys.executable} -c "{NEST}"'


@pytest.mark.parametrize(
    "script",
    [
        'rm -f "$folder"/*',
        'rm -rf "$folder"',
        'for file in "$folder"/step-*.pid; do echo nonsense >"$file"; done; touch "$folder/step-x.pid"',
        'for file in "$folder"/step-*.pid; do echo "99999999999999999999 1" >"$file"; done',
        'mkfifo "$folder/step-1.raw"',
        'for file in "$folder"/step-*.pid; do rm "$file"; mkdir "$file"; done',
        'echo nonsense >>"$folder/events"; rm "$folder/log"; mkdir "$folder/log"',
        NESTED,
    ],
)
async def test_only_job_with_damaged_files_ends(agent: AgentProcess, a_job: Build, tmp_path: Path, script: str) -> None:
    first = f"touch up; until [ -e {tmp_path}/go ]; do sleep 0.02; done; {FOLDER}{script}"
    bad = a_job("bad", steps=steps_text({"name": "a", "script": first}, {"name": "b", "script": "true"}))
    good = a_job(
        "good", work_dir=str(tmp_path / "good"), script="touch up; until [ -e go ]; do sleep 0.02; done; echo well"
    )
    async with agent.client() as client:
        await client.start(bad)
        await client.start(good)
        await until((tmp_path / "work/up").exists)
        await until((tmp_path / "good/up").exists)
        (tmp_path / "go").touch()
        async with asyncio.timeout(20), client.watch() as watch:
            await watch.subscribe("bad", log_offset=0, result_seq=1)
            async for event in watch:
                if isinstance(event, JobEnded):
                    break
        (tmp_path / "good/go").touch()
        seen = await follow(client, "good")
        assert seen.check().status == "success"
        assert seen.lines == [b"well"]
        await client.close_job("bad")
    assert (await run_job(agent, a_job("next", script="echo next"))).lines == [b"next"]


async def test_deeply_nested_folders_in_the_exchange_folder_are_removed(agent: AgentProcess, a_job: Build) -> None:
    assert (await run_job(agent, a_job(script=NESTED))).check().status == "success"


async def test_pipe_in_place_of_output_file_does_not_block(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    """The agent creates the file because the next step names it in its command."""
    (tmp_path / "work/next").mkdir(parents=True)
    (tmp_path / "work/next/func.yml").write_text(
        'spec: {}\n---\nexec: {command: [sh, -c, "echo ran; : >$1", sh, "${{ output_file }}"]}\n'
    )
    pipes = 'cd "$(dirname "$REMUDA_OUTPUTS")"; for n in 1 2 3 4; do mkfifo step-$n.outputs step-$n.exports; done'
    bad = a_job("bad", steps=steps_text({"name": "a", "script": pipes}, {"name": "b", "step": "./next"}))
    async with asyncio.timeout(20):
        seen = await run_job(agent, bad)
        assert (seen.check().status, seen.lines) == ("failure", [])
        assert "plain file" in seen.check().message
        assert (await run_job(agent, a_job("next", script="echo next"))).lines == [b"next"]


async def test_a_folder_in_the_place_of_a_script_is_the_jobs_failure(agent: AgentProcess, a_job: Build) -> None:
    folders = 'cd "$(dirname "$REMUDA_OUTPUTS")"; for n in 1 2 3 4; do mkdir -p step-$n.script; done'
    steps = steps_text({"name": "a", "script": folders}, {"name": "b", "script": "echo ran"})
    end = (await run_job(agent, a_job(steps=steps))).check()
    assert (end.status, end.reason) == ("failure", "script_failure"), end
    assert "step-1.script: it has to be a plain file" in end.message


async def test_folder_as_file_variable_outlives_an_agent(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    """The next agent does not write the file again after a step has run."""
    script = 'rm "$FILE" && mkdir -p "$FILE/x" && touch up; until [ -e go ]; do sleep 0.02; done'
    steps = steps_text({"name": "a", "script": script}, {"name": "b", "script": "echo went on"})
    job = a_job("bad", steps=steps, variables=(JobVariable(key="FILE", value="text", file=True),))
    async with agent.client() as client:
        await client.start(job)
    await until((tmp_path / "work/up").exists)
    await agent.kill()
    await agent.start()
    (tmp_path / "work/go").touch()
    async with asyncio.timeout(20), agent.client() as client:
        seen = await follow(client, "bad")
    assert (seen.check().status, seen.lines) == ("success", [b"went on"]), seen.log.decode()
