"""The files of fetched steps in containers: which steps see which packages, and what happens if the agent dies."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine
from tests.support.servers.step_server import run_step_server
from tests.support.step_packages import Project

from remuda.steps.policy import sandbox
from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart

TOOL = """
spec: {}
---
exec: {command: [cat, "${{ step_dir }}/note"]}
"""
LIST = """
spec: {}
---
run:
  - {name: wait, script: "touch up; while [ ! -e go ]; do sleep 0.1; done"}
  - {name: tool, step: ../tool}
  - {name: own, script: "cat ${{ func_dir }}/note"}
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with run_step_server(tmp_path / "served") as server:
        project = Project.new(server, tmp_path / "steps")
        project.commit(
            files={
                "steps/tool/func.yml": TOOL,
                "steps/tool/note": "note of the tool\n",
                "steps/list/func.yml": LIST,
                "steps/list/note": "note of the list\n",
            }
        )
        yield project


def a_box(engine: DockerEngine, *inner: dict[str, Any], **more: Any) -> dict[str, Any]:
    inputs = {"image": BUSYBOX, "pull_policy": ["never"], "engine": engine.host}
    return {"name": "box", "step": "builtin://container", "inputs": inputs, "run": list(inner)} | more


async def test_a_container_that_a_fetched_step_opens_has_the_files_of_that_step(
    engine: DockerEngine, agent: AgentProcess, project: Project, tmp_path: Path
) -> None:
    """The list of the step runs on the machine, so `step_dir` in it is a path in the agent's cache."""
    inner = [
        {"name": "around", "script": "cat ${{ step_dir }}/note; ! touch ${{ step_dir }}/new"},
        {"name": "tool", "step": "../tool"},
    ]
    boxed = f"spec: {{remuda: 1}}\n---\n{json.dumps({'run': [a_box(engine, *inner)]})}\n"
    project.commit(files={"steps/boxed/func.yml": boxed, "steps/boxed/note": "note of the box\n"})
    (tmp_path / "work").mkdir()
    steps = steps_text({"name": "one", "step": f"{project.address}/-/boxed@main"})
    seen = await run_job(agent, JobStart(id="1", work_dir=str(tmp_path / "work"), steps=steps))
    assert seen.check().status == "success", seen.log.decode()
    assert [line for line in seen.lines if line.startswith(b"note")] == [b"note of the box", b"note of the tool"]


async def test_processes_in_a_container_cannot_change_packages(
    engine: DockerEngine, agent: AgentProcess, project: Project, tmp_path: Path
) -> None:
    """A process of an earlier step tries it all the time: while packages are added, in use, and while no agent runs."""
    (tmp_path / "work").mkdir()
    attack = """
        while [ ! -e stop ]; do
          for note in $(find "$1" -name note); do
            echo changed >>"$note"; chmod 777 "$note"; rm -f "$note"; ln "$note" linked; mv "${note%/*}" moved
            echo changed >"/proc/self/root$note"
          done
          mount -o remount,rw "$1"; mount --bind . "$1"; umount "$1"; touch "$1/new"; mkdir "$1/folder"
          echo round >>rounds
        done
    """
    packages = f"$(echo {agent.data}/jobs/*/packages)"
    box = a_box(
        engine,
        {"name": "attack", "script": f"cat >attack.sh <<'X'\n{attack}\nX\nsh attack.sh {packages} >/dev/null 2>&1 &"},
        {"name": "list", "step": f"{project.address}/-/list@main"},
        {"name": "again", "step": f"{project.address}/-/tool@main"},
        {"name": "stop", "script": "touch stop"},
        origin="compiled",
    )

    def count_rounds() -> int:
        return len((tmp_path / "work/rounds").read_text().splitlines())

    async with agent.client() as client:
        await client.start(JobStart(id="1", work_dir=str(tmp_path / "work"), steps=steps_text(box)))
        await until((tmp_path / "work/up").exists)
        await until((tmp_path / "work/rounds").exists)
    await agent.kill()
    rounds = count_rounds()
    await until(lambda: count_rounds() > rounds + 2)
    await agent.start()
    (tmp_path / "work/go").touch()
    async with agent.client() as client:
        seen = await follow(client, "1")
    assert seen.check().status == "success", seen.log.decode()
    lines = [line for line in seen.lines if line.startswith(b"note")]
    assert lines == [b"note of the tool", b"note of the list", b"note of the tool"]
    assert not (tmp_path / "work/linked").exists()
    notes = [note.read_text() for note in (agent.data / "packages").rglob("note")]
    assert sorted(notes) == ["note of the list\n", "note of the tool\n"]


async def test_a_container_sees_no_other_files_of_the_agent(
    engine: DockerEngine, agent: AgentProcess, project: Project, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    look = f"find {agent.data} -maxdepth 4 | sed 's/^/found /'; find {agent.data} -name note | sed 's/^/note /'"
    box = a_box(
        engine,
        {"name": "tool", "step": f"{project.address}/-/tool@main"},
        {"name": "look", "script": look},
        origin="compiled",
    )
    other = steps_text({"name": "tool", "step": f"{project.address}/-/tool@main"})
    (await run_job(agent, JobStart(id="0", work_dir=str(tmp_path / "work"), steps=other))).check()
    seen = await run_job(agent, JobStart(id="1", work_dir=str(tmp_path / "work"), steps=steps_text(box)))
    assert seen.check().status == "success", seen.log.decode()
    assert b"note of the tool" in seen.lines
    found = {line.rpartition(b"/")[2] for line in seen.lines if line.startswith(b"found ") and b"/jobs/" in line}
    assert {b"exchange", b"packages"} <= found
    assert not found & {b"events", b"request", b"log", b"results"}
    assert not any(line.startswith(b"found ") and b"/packages/packages" in line for line in seen.lines)
    assert sum(line.startswith(b"note /") for line in seen.lines) == 2  # those of this job's package


@pytest.mark.skipif(sandbox.problem() is not None, reason=f"no sandbox here: {sandbox.problem()}")
@pytest.mark.parametrize("is_hidden", [False, True], ids=["sandbox", "hidden"])
async def test_a_sandbox_sees_no_other_files_of_the_agent(
    agent: AgentProcess, project: Project, tmp_path: Path, is_hidden: bool
) -> None:
    """With `hidden` folders, as for jobs of `remuda up`, everything else on the machine is visible."""
    (tmp_path / "work").mkdir()
    tool = {"name": "tool", "step": f"{project.address}/-/tool@main"}
    look = {"name": "look", "script": f"find {agent.data} -name '[a-z]*' | sed 's/^/found /'"}
    audit = {"name": "audit", "before": "job", "step": f"{project.address}/-/tool@inserted"}
    policy = {"version": 1, "layers": [{"author": "runner r", "document": {"insert": [audit]}}]}
    project.commit("refs/heads/inserted", files={"steps/tool/note": "note of the policy\n", "steps/tool/policy": "x"})
    job = JobStart(
        id="1",
        work_dir=str(tmp_path / "work"),
        steps=steps_text(tool, look),
        sandbox=True,
        hidden=(str(agent.data),) if is_hidden else (),
        policy=json.dumps(policy),
    )
    seen = await run_job(agent, job)
    assert seen.check().status == "success", seen.log.decode()
    notes = [line for line in seen.lines if line.startswith(b"note")]
    assert notes == [b"note of the policy", b"note of the tool"]
    found = [line for line in seen.lines if line.startswith(b"found ")]
    assert any(line.endswith(b"/tool/note") for line in found)
    assert not any(line.endswith((b"/tool/policy", b"/events", b"/request", b"/agent.sock")) for line in found)
    assert not any(b"/packages/packages" in line for line in found)


async def test_a_new_agent_continues_a_fetched_step_in_a_container(
    engine: DockerEngine, agent: AgentProcess, project: Project, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    box = a_box(engine, {"name": "list", "step": f"{project.address}/-/list@main"}, origin="compiled")
    async with agent.client() as client:
        await client.start(JobStart(id="1", work_dir=str(tmp_path / "work"), steps=steps_text(box)))
        await until((tmp_path / "work/up").exists)
    await agent.kill()
    await agent.start()
    (tmp_path / "work/go").touch()
    async with agent.client() as client:
        seen = await follow(client, "1")
    assert seen.check().status == "success", seen.log.decode()
    assert [line for line in seen.lines if line.startswith(b"note")] == [b"note of the tool", b"note of the list"]
    # A nested step belongs to the package, although another agent has fetched it.
    [tool] = [event for event in seen.results if event["event"] == "finished" and event["path"].endswith("/tool")]
    assert tool["resolved"]["commit"] == project.head
