"""Statuses of commits: those of jobs, and those that other systems report, with python-gitlab as the client."""

import gitlab
import pytest
from gitlab.v4.objects import Project
from tests.support.cells.people import add_member, create_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

PIPELINE = """
build: {stage: build, script: [make]}
check: {stage: test, script: [make], allow_failure: true}
"""


@pytest.fixture
def project(cell: ServedCell, client: gitlab.Gitlab) -> Project:
    return client.projects.get(cell.new_project("app", PIPELINE))


def test_statuses_of_jobs(project: Project, runner: ScriptedRunner) -> None:
    commit = project.commits.get("main")
    runner.put(runner.take(), "failed")
    statuses = commit.statuses.list(get_all=True)
    assert [(row.name, row.status, row.allow_failure) for row in statuses] == [
        ("build", "failed", False),
        ("check", "skipped", True),
    ]
    first = statuses[0]
    assert (first.sha, first.ref, first.author["username"]) == (commit.id, "main", "root")
    assert first.pipeline_id == commit.last_pipeline["id"]
    project.jobs.get(first.id).retry()
    assert len(commit.statuses.list(get_all=True)) == 2
    assert len(commit.statuses.list(get_all=True, all=True)) == 3
    assert [row.name for row in commit.statuses.list(get_all=True, stage="test")] == ["check"]
    assert [row.name for row in commit.statuses.list(get_all=True, name="build")] == ["build"]
    assert commit.statuses.list(get_all=True, ref="other") == []
    assert commit.statuses.list(get_all=True, pipeline_id=99999) == []
    ids = [row.id for row in commit.statuses.list(get_all=True, order_by="id", sort="desc", all=True)]
    assert ids == sorted(ids, reverse=True)


def test_reports_count_in_the_pipeline(cell: ServedCell, project: Project, runner: ScriptedRunner) -> None:
    commit = project.commits.get("main")
    reported = commit.statuses.create(
        {"state": "running", "name": "jenkins", "target_url": "https://jenkins.example/1", "description": "runs"}
    )
    assert (reported.status, reported.pipeline_id) == ("running", commit.last_pipeline["id"])
    for _ in range(2):
        runner.put(runner.take(), "success")
    assert project.commits.get("main").status == "running"
    names = [row.name for row in commit.statuses.list(get_all=True)]
    assert names == ["build", "check", "jenkins"]
    pages = [commit.statuses.list(page=number, per_page=2, get_all=False) for number in (1, 2)]
    assert [[row.name for row in page] for page in pages] == [["build", "check"], ["jenkins"]]
    commit.statuses.create({"state": "success", "context": "jenkins", "coverage": 50.5})
    assert project.commits.get("main").status == "success"
    [status] = commit.statuses.list(get_all=True, stage="external")
    assert (status.id, status.description, status.coverage) == (reported.id, "runs", 50.5)
    assert project.pipelines.get(reported.pipeline_id).coverage == "50.50"
    root = f"/projects/{project.id}/statuses/{commit.id}"
    for body in (
        {},
        {"state": "error"},
        {"state": "failed", "target_url": "javascript:x"},
        {"state": "failed", "name": "x" * 256},
    ):
        assert cell.api("POST", root, body).status == 400, body
    assert cell.api("POST", f"/projects/{project.id}/statuses/{'a' * 40}", {"state": "failed"}).status == 404
    assert cell.api("POST", root, {"state": "failed", "pipeline_id": 99999}).status == 404


def test_a_commit_without_pipeline_gets_an_external_one(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("plain", a="1"))
    commit = project.commits.get("main")
    first = commit.statuses.create({"state": "pending", "name": "a"})
    commit.statuses.create({"state": "success", "name": "b", "ref": "main"})
    [pipeline] = project.pipelines.list(get_all=True)
    assert (pipeline.id, pipeline.source, pipeline.status) == (first.pipeline_id, "external", "running")
    commit.statuses.create({"state": "success", "name": "a"})
    assert project.pipelines.get(pipeline.id).status == "success"
    assert project.commits.get("main").last_pipeline["id"] == pipeline.id
    answer = cell.api("POST", f"/projects/{project.id}/statuses/{commit.id}", {"state": "failed", "ref": "nowhere"})
    assert (answer.status, answer.json()["message"]) == (404, "404 References for commit Not Found")
    pipeline.delete()
    assert commit.statuses.list(get_all=True) == []


def test_who_may_report(cell: ServedCell, project: Project) -> None:
    reporter, developer = create_person(cell, "rita"), create_person(cell, "dora")
    add_member(cell, f"projects/{project.id}", reporter, 20)
    add_member(cell, f"projects/{project.id}", developer, 30)
    sha = project.commits.get("main").id
    path, body = f"/projects/{project.id}/statuses/{sha}", {"state": "success"}
    assert reporter.api("POST", path, body).status == 403
    assert developer.api("POST", path, body).status == 403  # the branch is protected
    assert reporter.api("GET", f"/projects/{project.id}/repository/commits/{sha}/statuses").status == 200
