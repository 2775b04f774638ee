"""Remuda's own calls about pipelines: list with details, graph, artifacts, digest of the tests, and the start form."""

import gzip
from typing import Any

from tests.support.cells.people import add_member, create_person
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

FILE = """
stages: [build, test]
build: {stage: build, script: [x]}
unit: {stage: test, script: [x], tags: [rare]}
docs: {stage: test, script: [x], needs: [build]}
"""
REPORT = "<testsuite>{}</testsuite>"
CASE = '<testcase name="case {0}" classname="c" time="{0}"><failure>{1}</failure></testcase>'


def get(cell: ServedCell, path: str) -> Any:
    answer = send(cell, path)
    assert answer.status == 200, answer
    return answer.json()


def send(cell: ServedCell, path: str, token: str = "") -> Answer:
    return cell.send("GET", f"/api/remuda/v1{path}", PRIVATE_TOKEN=token or cell.token)


def test_the_graph_of_a_pipeline(cell: ServedCell) -> None:
    project = cell.new_project("app", FILE)
    runner = cell.new_runner(run_untagged=True)
    job = runner.take()
    runner.put(job, "failed", failure_reason="script_failure")
    cell.api("POST", f"/projects/{project}/jobs/{job['id']}/retry")
    path = "/pipelines/1/progress"
    build, unit, docs = get(cell, f"{path}?graph=true")["jobs"]
    unit, docs, build = sorted((build, unit, docs), key=lambda each: str(each["name"]), reverse=True)
    assert [(attempt["id"], attempt["status"]) for attempt in build["attempts"]] == [(job["id"], "failed")]
    assert (docs["needs"], docs.get("by_stage", False)) == (["build"], False)
    assert (unit.get("needs", []), unit["by_stage"]) == ([], True)
    assert "rare" in unit["no_runner_reason"]
    assert build["pending_at"] > 0
    plain = get(cell, path)
    assert all("needs" not in each and "attempts" not in each for each in plain["jobs"])


def test_upstream_pipelines_are_named_to_those_who_may_see_them(cell: ServedCell, runner: ScriptedRunner) -> None:
    target = cell.new_project("target", "inner: {script: [x]}\n")
    cell.new_project("app", "go: {trigger: {project: root/target}}\n")
    pipelines = cell.until_pipelines(2, "root/target")
    path = f"/pipelines/{pipelines[0]['id']}/progress?graph=true"
    assert get(cell, path)["upstream"]["project"] == "root/app"
    person = create_person(cell, "rita")
    add_member(cell, f"projects/{target}", person, 20)
    answer = send(cell, path, person.token)
    assert (answer.status, "upstream" in answer.json()) == (200, False)


def test_the_list_has_duration_user_and_commit(cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", "build: {script: [x]}\n")
    runner.put(runner.take(), "success")
    cell.api("POST", f"/projects/{project}/pipeline", {"ref": "main"})
    entries = get(cell, f"/projects/{project}/pipelines")
    assert [(entry["status"], entry["commit_title"]) for entry in entries] == [
        ("pending", "First commit"),
        ("success", "First commit"),
    ]
    assert (entries[1]["user"]["username"], entries[1]["duration"] is not None) == ("root", True)
    assert len(get(cell, f"/projects/{project}/pipelines?status=success&source=push&ref=main&username=root")) == 1
    assert send(cell, f"/projects/{project}/pipelines?status=odd").status == 400


def test_artifacts_of_all_jobs(cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", FILE.replace(", tags: [rare]", ""))
    for _ in range(3):
        job = runner.take()
        runner.upload(job, b"data", query="?expire_in=1week")
        runner.put(job, "success")
    files = get(cell, f"/projects/{project}/pipelines/1/artifacts")
    assert sorted(file["job"] for file in files) == ["build", "docs", "unit"]
    assert {(file["type"], file["size"], file["expires_at"] is not None) for file in files} == {("archive", 4, True)}
    second = cell.new_project("other", "a: {script: [x]}\n")
    assert send(cell, f"/projects/{second}/pipelines/1/artifacts").status == 404


def test_the_digest_of_the_tests_is_bounded(cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", "unit: {script: [x]}\n")
    job = runner.take()
    report = REPORT.format("".join(CASE.format(number, "o" * 9000) for number in range(1, 251)))
    runner.upload(job, gzip.compress(report.encode()), query="?artifact_type=junit&artifact_format=gzip")
    runner.put(job, "failed", failure_reason="script_failure")
    digest = get(cell, f"/projects/{project}/pipelines/1/tests")
    assert (len(digest["failed"]), digest["failed_not_listed"]) == (200, 50)
    assert digest["failed"][0]["system_output"].endswith("o\n...")
    assert [case["execution_time"] for case in digest["slowest"][:2]] == [250, 249]
    assert (len(digest["slowest"]), digest["suites"][0]["failed_count"]) == (20, 250)


def test_the_form_of_a_branch(cell: ServedCell) -> None:
    text = "spec: {inputs: {place: {default: here, description: Where}}}\n---\na: {script: [x]}\n"
    project = cell.new_project("app", text)
    form = get(cell, f"/projects/{project}/pipeline_form?ref=main")
    (place,) = form["inputs"]
    assert (place["name"], place["default"], place["has_default"]) == ("place", "here", True)
    assert send(cell, f"/projects/{project}/pipeline_form?ref=gone").status == 400
    reporter = create_person(cell, "rita")
    add_member(cell, f"projects/{project}", reporter, 20)
    assert send(cell, f"/projects/{project}/pipeline_form?ref=main", reporter.token).status == 403
