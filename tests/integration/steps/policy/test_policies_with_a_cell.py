"""Policies of a runner and of a project on jobs from a real cell, through a real manager and agent."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.manager_harness import ManagerHarness

from remuda.steps.policy.sandbox import problem

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


@pytest.fixture
async def harness(public_folder: Path, cell: ServedCell) -> AsyncIterator[ManagerHarness]:
    harness = ManagerHarness(public_folder, cell)
    yield harness
    await harness.close()


def configure(harness: ManagerHarness, settings: str) -> None:
    harness.write_config(concurrent=1, extra=f"[runners.remuda]\n{settings}\n")


async def test_policies_of_runner_and_project_hold_together(cell: ServedCell, harness: ManagerHarness) -> None:
    configure(harness, 'policy = {limits = {memory = "900m"}}')
    project = cell.new_project("app", "build: {script: [echo built]}\n")
    document = {
        "rules": [{"name": "ours", "allow": "builtin", "limits": {"memory": "2g", "timeout": "10m"}}],
        "insert": [{"name": "audit", "script": "echo audited", "after": "job"}],
    }
    response = cell.send(
        "PUT", f"/api/remuda/v1/policies/project/{project}", {"document": document}, PRIVATE_TOKEN=cell.token
    )
    assert response.status == 200, response
    async with harness.manager():
        jobs = await cell.wait_for_jobs()
    steps = jobs["build"]["steps"]
    assert jobs["build"]["status"] == "success", jobs["build"]["log"]
    assert "audited" in jobs["build"]["log"]
    assert steps["/audit"]["origin"] == "inserted"
    result = steps["/step_script"]["policy"]
    assert result["rule"] == f"runner bench: default; project {project}: ours"
    assert "memory" in result["advisory"]


FORGED = """
variables: {CI_COMMIT_SHA: forged, CI_COMMIT_TAG: forged, CI_PROJECT_DIR: /forged, CI_API_V4_URL: forged, CI: forged,
  CI_JOB_TOKEN: forged, GITLAB_USER_LOGIN: forged, CI_PIPELINE_SOURCE: forged, CI_INVENTED: forged, MAKEFILES: forged}
build: {script: [echo built]}
"""


@pytest.mark.parametrize("author", ["runner", "project"])
async def test_predefined_variables_of_an_inserted_step(cell: ServedCell, harness: ManagerHarness, author: str) -> None:
    insert = [{"name": "audit", "script": "env | sed 's/^/audit: /'", "after": "job"}]
    policy = f"policy = {{insert = [{{name = 'audit', script = \"{insert[0]['script']}\", after = 'job'}}]}}"
    configure(harness, policy if author == "runner" else "")
    project = cell.new_project("app", FORGED)
    if author == "project":
        path = f"/api/remuda/v1/policies/project/{project}"
        assert cell.send("PUT", path, {"document": {"insert": insert}}, PRIVATE_TOKEN=cell.token).status == 200
    async with harness.manager():
        log = (await cell.wait_for_jobs())["build"]["log"]
    lines = [line.partition("audit: ")[2] for line in log.splitlines() if "audit: " in line]
    env = {name: value for name, _, value in (line.partition("=") for line in lines)}
    assert not [name for name, value in env.items() if "forged" in value], log
    assert not {"CI_COMMIT_TAG", "CI_INVENTED", "MAKEFILES"} & env.keys()
    assert len(env["CI_COMMIT_SHA"]) == 40
    assert env["CI_PROJECT_DIR"].startswith(str(harness.jobs)), env["CI_PROJECT_DIR"]
    assert env["CI_PIPELINE_SOURCE"] == "push"
    assert env["GITLAB_USER_LOGIN"] == "root"
    assert env["CI_API_V4_URL"].endswith("/api/v4")
    assert env["CI_JOB_TOKEN"] == "[MASKED]"


async def test_denied_job_says_why(cell: ServedCell, harness: ManagerHarness) -> None:
    configure(harness, 'policy = {rules = [{name = "no scripts", deny = "builtin:script"}]}')
    cell.new_project("app", "build: {script: [echo built]}\n")
    async with harness.manager():
        jobs = await cell.wait_for_jobs()
    assert (jobs["build"]["status"], jobs["build"]["failure_reason"]) == ("failed", "script_failure")
    assert 'is denied by "no scripts" in the policy of runner bench' in jobs["build"]["log"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_job_runs_as_the_user_of_its_slot(cell: ServedCell, harness: ManagerHarness) -> None:
    configure(harness, "first_uid = 210000")
    cell.new_project("app", PIPELINE, **{"file.txt": "text\n"})
    async with harness.manager():
        first = await cell.wait_for_jobs()
        cell.api("POST", "/projects/1/pipeline?ref=main")
        second = await cell.wait_for_jobs(2)
    assert [first[name]["status"] for name in ("build", "use")] == ["success", "success"], first["build"]["log"]
    assert "210000" in first["build"]["log"]
    assert "journal.sqlite: Permission denied" in first["build"]["log"]
    assert "text" in first["use"]["log"]
    assert "from the cache" in second["build"]["log"]
    assert first["build"]["steps"]["/step_script"]["policy"]["enforced"] == ["steps"]
    owners = {path.stat().st_uid for path in (harness.jobs / "builds").rglob("file.txt")}
    assert owners == {210000}


@pytest.mark.skipif(problem() is not None, reason=f"no sandbox here: {problem()}")
async def test_job_runs_in_a_sandbox(cell: ServedCell, harness: ManagerHarness) -> None:
    configure(harness, "sandbox = true")
    cell.new_project("app", PIPELINE, **{"file.txt": "text\n"})
    async with harness.manager():
        first = await cell.wait_for_jobs()
        cell.api("POST", "/projects/1/pipeline?ref=main")
        second = await cell.wait_for_jobs(2)
    assert [first[name]["status"] for name in ("build", "use")] == ["success", "success"], first["build"]["log"]
    assert "journal.sqlite: No such file" in first["build"]["log"]
    assert "text" in first["use"]["log"]
    assert "from the cache" in second["build"]["log"]
