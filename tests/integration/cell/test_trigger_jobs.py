"""Trigger jobs in a real cell: a monorepo with child pipelines, one of them generated, and another project."""

import io
import zipfile
from typing import Any

from tests.support.cells.served_cell import ScriptedRunner, ServedCell, commit_file

from remuda.testing.waiting import wait_until

PARENT = """
stages: [generate, children, deploy]
variables: {RELEASE: "1.2"}
generate:
  stage: generate
  script: [./generate]
  artifacts: {paths: [out]}
shop:
  stage: children
  variables: {SERVICE: shop}
  trigger:
    include: [{local: services/$SERVICE.yml, inputs: {shards: 2}}]
    strategy: depend
generated:
  stage: children
  trigger:
    include: [{artifact: out/pipeline.yml, job: generate}]
    strategy: depend
docs:
  stage: children
  trigger: {project: root/docs, forward: {pipeline_variables: true}}
deploy:
  stage: deploy
  script: [./deploy]
"""
SHOP = """
spec: {inputs: {shards: {type: number}}}
---
test:
  script: [./test]
  parallel: $[[ inputs.shards ]]
"""
GENERATED = b"""
for-release:
  script: [echo]
  rules: [{if: $RELEASE == "1.2" && $CI_PIPELINE_SOURCE == "parent_pipeline"}]
"""


def archive(path: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("out/other.bin", bytes(100_000))
        file.writestr(path, content)
    return packed.getvalue()


class Monorepo:
    """A parent pipeline that has generated its second child."""

    def __init__(self, cell: ServedCell, runner: ScriptedRunner, generated: bytes = GENERATED) -> None:
        self.cell, self.runner = cell, runner
        self.docs = cell.new_project("docs", "build-docs: {script: [x], rules: [{if: $GIVEN}]}")
        self.project = cell.new_project("app", PARENT, **{"services/shop.yml": SHOP})
        pipeline = cell.until_pipelines(1, "root/app")[0]
        cell.api("POST", f"/projects/{self.project}/pipelines/{pipeline['id']}/cancel")
        body = {"ref": "main", "variables": [{"key": "GIVEN", "value": "x"}]}
        self.pipeline = int(cell.api("POST", f"/projects/{self.project}/pipeline", body).json()["id"])
        job = self.take("generate")
        assert runner.upload(job, archive("out/pipeline.yml", generated)).status == 201
        assert runner.put(job, "success").status == 200

    def statuses(self, pipeline: int = 0, project: int = 0) -> dict[str, str]:
        """Return the status of all jobs and trigger jobs, by name."""
        path = f"/projects/{project or self.project}/pipelines/{pipeline or self.pipeline}"
        rows = [*self.cell.api("GET", f"{path}/jobs").json(), *self.cell.api("GET", f"{path}/bridges").json()]
        return {row["name"]: row["status"] for row in rows}

    def downstream(self, name: str) -> dict[str, Any]:
        """Wait for the pipeline that a trigger job starts, and return it."""
        pipeline: dict[str, Any] = {}

        def is_there() -> bool:
            bridges = self.cell.api("GET", f"/projects/{self.project}/pipelines/{self.pipeline}/bridges").json()
            pipeline.update(next(row for row in bridges if row["name"] == name)["downstream_pipeline"] or {})
            return bool(pipeline)

        wait_until(is_there, f"the pipeline of {name}")
        return pipeline

    def until(self, **expected: str) -> None:
        wait_until(lambda: expected.items() <= self.statuses().items(), str(expected))

    def take(self, name: str) -> dict[str, Any]:
        """Take a job that is or becomes ready."""
        job = self.runner.take(hold=True)
        assert job["job_info"]["name"] == name
        return job

    def run_all(self, failing: str = "") -> list[str]:
        """Run the jobs that wait for a runner; return their names in order."""
        names = []
        while (answer := self.runner.ask()).status == 201:
            job = answer.json()
            names.append(job["job_info"]["name"])
            failed = names[-1] == failing
            self.runner.put(job, "failed" if failed else "success", failure_reason="script_failure" if failed else None)
        return names


def test_a_monorepo_with_children_and_another_project(cell: ServedCell, runner: ScriptedRunner) -> None:
    repo = Monorepo(cell, runner)
    children = {name: repo.downstream(name) for name in ("shop", "generated", "docs")}
    repo.until(shop="running", generated="running", docs="success", deploy="created")
    assert {child["source"] for child in children.values()} == {"parent_pipeline", "pipeline"}
    assert set(repo.statuses(children["shop"]["id"])) == {"test 1/2", "test 2/2"}
    assert set(repo.statuses(children["docs"]["id"], repo.docs)) == {"build-docs"}

    ran: list[str] = []

    def is_over() -> bool:
        ran.extend(repo.run_all())
        pipeline = cell.api("GET", f"/projects/{repo.project}/pipelines/{repo.pipeline}").json()
        return bool(pipeline["status"] == "success")

    wait_until(is_over, "the end of the parent")
    ran.remove("build-docs")  # of another project, whose pipeline nobody waits for
    assert (sorted(ran[:-1]), ran[-1]) == (["for-release", "test 1/2", "test 2/2"], "deploy")
    listed = cell.api("GET", f"/projects/{repo.project}/pipelines").json()
    assert children["shop"]["id"] not in [row["id"] for row in listed]


def test_failures_and_retries_reach_the_parent(cell: ServedCell, runner: ScriptedRunner) -> None:
    repo = Monorepo(cell, runner)
    child = repo.downstream("shop")
    repo.downstream("generated")
    repo.until(docs="success")
    repo.run_all(failing="test 2/2")
    repo.until(shop="failed", deploy="skipped")
    assert cell.api("POST", f"/projects/{repo.project}/pipelines/{child['id']}/retry").status == 201
    repo.until(shop="running", deploy="created")
    assert runner.put(repo.take("test 2/2"), "success").status == 200
    repo.until(shop="success", deploy="pending")


def test_a_cancel_reaches_children_but_not_other_projects(cell: ServedCell, runner: ScriptedRunner) -> None:
    repo = Monorepo(cell, runner)
    children = {name: repo.downstream(name) for name in ("shop", "generated", "docs")}
    repo.until(shop="running", generated="running", docs="success")
    cell.api("POST", f"/projects/{repo.project}/pipelines/{repo.pipeline}/cancel")
    repo.until(shop="canceled", generated="canceled", deploy="canceled")
    assert set(repo.statuses(children["shop"]["id"]).values()) == {"canceled"}
    assert repo.run_all() == ["build-docs"]


def test_a_generated_file_with_mistakes_fails_its_trigger_job(cell: ServedCell, runner: ScriptedRunner) -> None:
    repo = Monorepo(cell, runner, b"a: {skript: x}\n")
    repo.until(generated="failed")
    bridges = cell.api("GET", f"/projects/{repo.project}/pipelines/{repo.pipeline}/bridges").json()
    failed = next(row for row in bridges if row["name"] == "generated")
    assert failed["failure_reason"] == "downstream_pipeline_creation_failed"


def test_another_project_whose_default_branch_came_with_its_first_push(cell: ServedCell) -> None:
    docs = cell.new_project("docs")
    commit_file(cell, docs, "build: {script: [x]}\n", branch="trunk")
    cell.new_project("app", "go: {trigger: root/docs}\n")
    pipelines = cell.until_pipelines(2, "root/docs")
    assert [(pipeline["ref"], pipeline["source"]) for pipeline in pipelines] == [
        ("trunk", "pipeline"),
        ("trunk", "push"),
    ]
