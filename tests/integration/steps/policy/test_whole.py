"""Policies of a runner and of a project on jobs from a real cell, through a real manager and agent."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.manager_bench import ManagerBench

from remuda.steps.policy.sandbox import problem
from remuda.telemetry.logs import configure
from remuda.testing.coordinator import Coordinator
from remuda.testing.waiting import wait_until

PIPELINE = """
build:
  cache: {key: it, paths: [deps]}
  script:
    - id -u
    - mkdir -p deps out
    - "[ -e deps/made ] && echo from the cache || echo made > deps/made"
    - cp file.txt out/
    - "cat $CI_BUILDS_DIR/../../data/journal.sqlite && exit 9 || true"
  artifacts: {paths: [out]}
use:
  stage: deploy
  run: [{name: look, script: cat out/file.txt}]
  needs: [build]
"""


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> None:
    """A cell in a thread logs while pytest swaps the standard streams."""
    configure(level="error", log_format="text", stream=sys.__stderr__)


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[ServedCell]:
    with ServedCell(tmp_path / "cell") as served:
        yield served


@pytest.fixture
async def bench(place: Path) -> AsyncIterator[ManagerBench]:
    bench = ManagerBench(place, Coordinator())
    yield bench
    await bench.close()


def configure_runner(bench: ManagerBench, cell: ServedCell, own: str) -> None:
    bench.config.write_text(
        'concurrent = 1\ncheck_interval = 0.2\n[[runners]]\nname = "bench"\nexecutor = "shell"\n'
        f'url = "{cell.url}"\ntoken = "{cell.new_runner().token}"\n[runners.remuda]\n{own}\n'
    )


async def through(cell: ServedCell, count: int = 1) -> dict[str, dict[str, Any]]:
    """The jobs of the newest pipeline by name, with log and step results, once it has ended."""

    def wait() -> dict[str, dict[str, Any]]:
        number = cell.until_pipelines(count)[0]["id"]
        path = f"/projects/1/pipelines/{number}"
        final = ("success", "failed", "canceled")
        wait_until(lambda: cell.api("GET", path).json()["status"] in final, "the pipeline ends", seconds=60)
        jobs = {job["name"]: job for job in cell.api("GET", f"{path}/jobs").json()}
        for job in jobs.values():
            job["log"] = cell.api("GET", f"/projects/1/jobs/{job['id']}/trace").body.decode()
            steps = cell.send("GET", f"/api/remuda/v1/jobs/{job['id']}/steps", PRIVATE_TOKEN=cell.token).json()
            job["steps"] = {step["path"]: step for step in _events(steps) if step["event"] == "finished"}
        return jobs

    return await asyncio.to_thread(wait)


def _events(answer: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = answer["results"]
    return events


async def test_policies_of_runner_and_project_hold_together(cell: ServedCell, bench: ManagerBench) -> None:
    configure_runner(bench, cell, 'policy = {limits = {memory = "900m"}}')
    project = cell.new_project("app", "build: {script: [echo built]}\n")
    document = {
        "rules": [{"name": "ours", "allow": "builtin", "limits": {"memory": "2g", "timeout": "10m"}}],
        "insert": [{"name": "audit", "script": "echo audited", "after": "job"}],
    }
    put = cell.send(
        "PUT", f"/api/remuda/v1/policies/project/{project}", {"document": document}, PRIVATE_TOKEN=cell.token
    )
    assert put.status == 200, put
    async with bench.manager():
        jobs = await through(cell)
    steps = jobs["build"]["steps"]
    assert jobs["build"]["status"] == "success", jobs["build"]["log"]
    assert "audited" in jobs["build"]["log"]
    assert steps["/audit"]["origin"] == "inserted"
    told = steps["/step_script"]["policy"]
    assert told["rule"] == f"runner bench: default; project {project}: ours"
    assert "memory" in told["advisory"]


FORGED = """
variables: {CI_COMMIT_SHA: forged, CI_COMMIT_TAG: forged, CI_PROJECT_DIR: /forged, CI_API_V4_URL: forged, CI: forged,
  CI_JOB_TOKEN: forged, GITLAB_USER_LOGIN: forged, CI_PIPELINE_SOURCE: forged, CI_INVENTED: forged, MAKEFILES: forged}
build: {script: [echo built]}
"""


@pytest.mark.parametrize("author", ["runner", "project"])
async def test_an_inserted_step_has_the_predefined_variables_of_the_server(
    cell: ServedCell, bench: ManagerBench, author: str
) -> None:
    insert = [{"name": "audit", "script": "env | sed 's/^/audit: /'", "after": "job"}]
    policy = f"policy = {{insert = [{{name = 'audit', script = \"{insert[0]['script']}\", after = 'job'}}]}}"
    configure_runner(bench, cell, policy if author == "runner" else "")
    project = cell.new_project("app", FORGED)
    if author == "project":
        place = f"/api/remuda/v1/policies/project/{project}"
        assert cell.send("PUT", place, {"document": {"insert": insert}}, PRIVATE_TOKEN=cell.token).status == 200
    async with bench.manager():
        log = (await through(cell))["build"]["log"]
    lines = [line.partition("audit: ")[2] for line in log.splitlines() if "audit: " in line]
    env = {name: value for name, _, value in (line.partition("=") for line in lines)}
    assert not [name for name, value in env.items() if "forged" in value], log
    assert not {"CI_COMMIT_TAG", "CI_INVENTED", "MAKEFILES"} & env.keys()
    assert len(env["CI_COMMIT_SHA"]) == 40
    assert env["CI_PROJECT_DIR"].startswith(str(bench.jobs)), env["CI_PROJECT_DIR"]
    assert env["CI_PIPELINE_SOURCE"] == "push"
    assert env["GITLAB_USER_LOGIN"] == "root"
    assert env["CI_API_V4_URL"].endswith("/api/v4")
    assert env["CI_JOB_TOKEN"] == "[MASKED]"


async def test_denied_job_says_why(cell: ServedCell, bench: ManagerBench) -> None:
    configure_runner(bench, cell, 'policy = {rules = [{name = "no scripts", deny = "builtin:script"}]}')
    cell.new_project("app", "build: {script: [echo built]}\n")
    async with bench.manager():
        jobs = await through(cell)
    assert (jobs["build"]["status"], jobs["build"]["failure_reason"]) == ("failed", "script_failure")
    assert 'is denied by "no scripts" in the policy of runner bench' in jobs["build"]["log"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_job_runs_as_the_user_of_its_slot(cell: ServedCell, bench: ManagerBench) -> None:
    configure_runner(bench, cell, "first_uid = 210000")
    cell.new_project("app", PIPELINE, **{"file.txt": "text\n"})
    async with bench.manager():
        first = await through(cell)
        cell.api("POST", "/projects/1/pipeline?ref=main")
        second = await through(cell, 2)
    assert [first[name]["status"] for name in ("build", "use")] == ["success", "success"], first["build"]["log"]
    assert "210000" in first["build"]["log"]
    assert "journal.sqlite: Permission denied" in first["build"]["log"]
    assert "text" in first["use"]["log"]
    assert "from the cache" in second["build"]["log"]
    assert first["build"]["steps"]["/step_script"]["policy"]["enforced"] == ["steps"]
    owners = {path.stat().st_uid for path in (bench.jobs / "builds").rglob("file.txt")}
    assert owners == {210000}


@pytest.mark.skipif(problem() is not None, reason=f"no sandbox here: {problem()}")
async def test_job_runs_in_a_sandbox(cell: ServedCell, bench: ManagerBench) -> None:
    configure_runner(bench, cell, "sandbox = true")
    cell.new_project("app", PIPELINE, **{"file.txt": "text\n"})
    async with bench.manager():
        first = await through(cell)
        cell.api("POST", "/projects/1/pipeline?ref=main")
        second = await through(cell, 2)
    assert [first[name]["status"] for name in ("build", "use")] == ["success", "success"], first["build"]["log"]
    assert "journal.sqlite: No such file" in first["build"]["log"]
    assert "text" in first["use"]["log"]
    assert "from the cache" in second["build"]["log"]
