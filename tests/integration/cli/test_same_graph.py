"""`remuda run` of a clone and a push of the same commit create the same jobs, with the same variables."""

import asyncio
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.git_client import Clone

from remuda.cell.core.payload.predefined_variables import of_pipeline
from remuda.cell.settings import CellSettings
from remuda.cell.store.open import open_store
from remuda.cell.values import Page
from remuda.model.job import PipelineId, ProjectId

FILE = """
include: [local: ci/*.yml]
stages: [build, test, deploy]
variables: {LEVEL: low, WHERE: $CI_PROJECT_PATH}
workflow:
  name: For $CI_COMMIT_BRANCH
  rules:
    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH
      variables: {LEVEL: high}
    - if: $CI_COMMIT_BRANCH
build:
  stage: build
  parallel:
    matrix:
      - {OS: [linux, mac], MODE: [fast, slow]}
  script: [echo $OS]
for-changes:
  stage: test
  needs: [{job: build, parallel: {matrix: [{OS: linux, MODE: fast}]}}]
  script: [echo]
  rules:
    - changes: [app/**/*]
      variables: {CHANGED: "yes"}
      allow_failure: true
for-other-changes:
  stage: test
  script: [echo]
  rules: [{changes: [other/*]}]
compared:
  stage: test
  script: [echo]
  rules: [{changes: {paths: [base/*], compare_to: stable}}]
only-on-main:
  stage: test
  script: [echo]
  only: [main]
deploy:
  stage: deploy
  script: [echo]
  environment: {name: review/$CI_COMMIT_REF_SLUG}
  rules:
    - if: $CI_COMMIT_BRANCH != $CI_DEFAULT_BRANCH && $CI_PROJECT_PATH == "acme/shop" && $CI_COMMIT_MESSAGE =~ /second/
      when: manual
      exists: [app/x]
"""
INCLUDED = "included: {stage: test, needs: [], script: [echo $CI_JOB_NAME], retry: 1, tags: [any]}\n"


async def load_graph(data: Path, pipeline: int | None = None) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the jobs and the predefined variables of a pipeline in a cell's store; by default of the newest one."""
    store, _ = await open_store(CellSettings(data=data, admin_token="never called"))
    try:
        if pipeline is None:
            newest, _ = await store.pipelines.list_pipelines(ProjectId(1), Page())
            pipeline = newest[0].id
        family = await store.pipelines.load_family(PipelineId(pipeline))
        assert family is not None
        project = await store.projects.load_project(family.pipeline.project_id)
        assert project is not None
        jobs = []
        for job in sorted(family.jobs, key=lambda job: job.name):
            spec = await store.jobs.load_spec(job.id)
            assert spec is not None
            fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
            jobs.append(fields | {"waits_for": job.waits_for, "by_stage": job.by_stage, "environment": job.environment})
        variables = of_pipeline(family.pipeline, project, "http://cell")
        return jobs, {name: value for name, value in variables.items() if name not in DIFFERENT_VARIABLES}
    finally:
        await store.close()


DIFFERENT_VARIABLES = {"CI_PIPELINE_CREATED_AT", "CI_PIPELINE_ID", "CI_PIPELINE_IID", "CI_PIPELINE_URL"}
LOCAL_PREFIXES = ("GITLAB_USER_", "CI_SERVER_HOST", "CI_SERVER_FQDN")
"""Prefixes of variables that differ because a local run uses the user and the server of the clone."""


def _pause_runner(address: str) -> None:
    """Pause the runner, so that no job of the push runs: such a job would continue after the end of `remuda up`."""
    body, headers = json.dumps({"paused": True}).encode(), {"PRIVATE-TOKEN": "glpat-for-this-test"}
    headers["Content-Type"] = "application/json"
    url = f"http://{address}/api/v4/runners/1"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PUT"), timeout=30) as response:
        assert json.load(response)["paused"] is True


def test_a_push_and_a_run_of_the_same_clone_give_the_same_graph(world: Any) -> None:
    up = world.start("up", "--data", "platform", "--listen", "127.0.0.1:0", REMUDA_ADMIN_TOKEN="glpat-for-this-test")
    output = ""
    while not (match := re.search(r"up at http://(\S+),", output)):
        line = up.stdout.readline().decode()
        assert line
        output += line
    _pause_runner(match[1])
    clone = Clone(world.folder / "clone", world.environment())
    clone.git("init", "--quiet", "--initial-branch=main")
    clone.git("remote", "add", "origin", f"http://me:glpat-for-this-test@{match[1]}/acme/shop.git")
    clone.commit("first", **{".gitlab-ci.yml": FILE, "ci/more.yml": INCLUDED, "app/x": "1", "other/x": "1"})
    clone.git("push", "--quiet", "origin", "main:main", "main:stable")
    clone.git("checkout", "--quiet", "-b", "topic")
    clone.commit("topic", **{"base/x": "1", "other/x": "2"})
    clone.git("push", "--quiet", "--set-upstream", "origin", "topic")
    clone.git("fetch", "--quiet", "origin")
    clone.git("remote", "set-head", "origin", "main")
    clone.commit("second", **{"app/deep/y": "1"})

    result = world.remuda("run", clone.folder, "--data", "ran", "--manual", "deploy")
    assert result.code == 0, result.out + result.err
    clone.git("push", "--quiet", "origin", "topic")
    up.terminate()
    assert up.wait(30) == 0

    local_jobs, local_variables = asyncio.run(load_graph(world.folder / "ran" / "cell", 1))
    pushed_jobs, pushed_variables = asyncio.run(load_graph(world.folder / "platform" / "cell"))
    assert [job["name"] for job in pushed_jobs] == [
        *(f"build: [{os}, {mode}]" for os in ("linux", "mac") for mode in ("fast", "slow")),
        "compared",
        "deploy",
        "for-changes",
        "included",
    ]
    assert local_jobs == pushed_jobs
    same = {name for name in local_variables if not name.startswith(LOCAL_PREFIXES)}
    assert {name: local_variables[name] for name in same} == {
        name: value for name, value in pushed_variables.items() if not name.startswith(LOCAL_PREFIXES)
    }
