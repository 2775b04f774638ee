"""Settings of projects that clients of GitLab send: honoured, told as ignored, or refused."""

from typing import Any

import gitlab
import pytest
from tests.support.cells.people import Person, add_member, create_person
from tests.support.cells.served_cell import ServedCell, commit_file
from tests.support.git_client import Clone

from remuda.testing.waiting import wait_until

JOB = "job: {script: [echo], cache: {key: k, paths: [a]}}\n"


def create(cell: ServedCell, **fields: Any) -> dict[str, Any]:
    created = cell.api("POST", "/projects", {"name": "app", **fields})
    assert created.status == 201, created
    project: dict[str, Any] = created.json()
    return project


def developer(cell: ServedCell, project: dict[str, Any]) -> Person:
    ada = create_person(cell, "ada")
    add_member(cell, f"projects/{project['id']}", ada, 30)
    return ada


def test_settings_are_stored_and_returned(cell: ServedCell) -> None:
    fields = {
        "build_timeout": 900,
        "ci_config_path": "ci/main.yml",
        "auto_cancel_pending_pipelines": "disabled",
        "build_git_strategy": "clone",
        "ci_default_git_depth": 5,
        "ci_separated_caches": False,
        "keep_latest_artifact": False,
        "lfs_enabled": False,
        "ci_pipeline_variables_minimum_override_role": "maintainer",
        "restrict_user_defined_variables": True,
        "topics": ["one", "two"],
    }
    project = create(cell, **fields)
    assert {name: project[name] for name in fields} == fields
    path = f"/projects/{project['id']}"
    for name, value in (("ci_default_git_depth", 0), ("ci_config_path", ""), ("topics", []), ("lfs_enabled", True)):
        assert cell.api("PUT", path, {name: value}).json()[name] == value
    assert cell.api("GET", path).json()["build_git_strategy"] == "clone"
    assert cell.api("PUT", path, {"tag_list": "a, b"}).json()["topics"] == ["a", "b"]


@pytest.mark.parametrize(
    "fields",
    [
        {"build_timeout": 1},
        {"build_git_strategy": "copy"},
        {"ci_default_git_depth": 5000},
        {"ci_config_path": "../x"},
        {"ci_pipeline_variables_minimum_override_role": "king"},
        {"public_jobs": False},
        {"import_url": "https://x.org/a.git"},
        {"repository_access_level": "private"},
    ],
)
def test_what_cannot_be_honoured_is_refused(cell: ServedCell, fields: dict[str, Any]) -> None:
    answer = cell.api("POST", "/projects", {"name": "app", **fields})
    assert answer.status == 400
    assert next(iter(fields)).encode() in answer.body
    assert cell.api("GET", "/projects?search=app").json() == []


def test_ignored_fields_are_told(cell: ServedCell) -> None:
    body = {"name": "app", "wiki_enabled": True, "squash_option": "always", "merge_method": "ff"}
    answer = cell.api("POST", "/projects", body)
    assert (answer.status, answer.headers["X-Remuda-Ignored"]) == (201, "merge_method, squash_option, wiki_enabled")
    body = {"merge_method": "merge", "mirror": False, "wiki_enabled": False, "packages_enabled": True}
    answer = cell.api("PUT", f"/projects/{answer.json()['id']}", body)
    assert (answer.status, answer.headers["X-Remuda-Ignored"]) == (200, None)
    answer = cell.api("POST", "/groups", {"name": "g", "path": "g", "project_creation_level": "noone"})
    assert (answer.status, answer.headers["X-Remuda-Ignored"]) == (201, "project_creation_level")


def test_ignored_filters_of_a_list_are_told(cell: ServedCell) -> None:
    create(cell)
    answer = cell.api("GET", "/projects?search=app&owned=true&starred=true&last_activity_after=&per_page=5&order_by=id")
    assert (answer.status, answer.headers["X-Remuda-Ignored"]) == (200, "starred")
    answer = cell.api("GET", "/projects/1/jobs?scope[]=success&scope[]=manual&kind=x")
    assert (answer.status, answer.headers["X-Remuda-Ignored"]) == (200, "kind")
    answer = cell.api("GET", "/projects/1/variables")
    assert (answer.status, answer.headers["X-Remuda-Ignored"]) == (200, None)


def test_lists_of_archived_projects_and_of_those_with_topics(cell: ServedCell) -> None:
    create(cell, name="old", topics=["steel", "robots"])
    create(cell, name="new", topics=["steel"])
    assert cell.api("POST", "/projects/root%2Fold/archive").status == 201
    for query, names in {
        "archived=true": ["old"],
        "archived=false": ["new"],
        "archived=": ["new", "old"],
        "topic=steel": ["new", "old"],
        "topic=steel,robots": ["old"],
        "topic=steel&archived=false": ["new"],
        "topic=iron": [],
    }.items():
        answer = cell.api("GET", f"/projects?{query}")
        assert [project["name"] for project in answer.json()] == names, query
        assert "X-Remuda-Ignored" not in answer.headers


def test_what_is_taken_because_it_changes_nothing_is_in_the_answer(cell: ServedCell) -> None:
    """Clients such as Terraform compare what they sent with the answer, and send a missing field again and again."""
    fields: dict[str, Any] = {
        "approvals_before_merge": 0,
        "merge_method": "merge",
        "only_allow_merge_if_all_discussions_are_resolved": False,
        "only_allow_merge_if_pipeline_succeeds": False,
        "squash_option": "default_off",
    }
    project = create(cell, **fields)
    assert {name: project.get(name, "missing") for name in fields} == fields
    fields = {
        "lfs_enabled": True,
        "project_creation_level": "developer",
        "request_access_enabled": False,
        "subgroup_creation_level": "maintainer",
    }
    answer = cell.api("POST", "/groups", {"name": "g", "path": "g", **fields})
    assert {name: answer.json().get(name, "missing") for name in fields} == fields
    assert answer.headers["X-Remuda-Ignored"] is None


def test_ignored_parameters_of_a_commit_are_told(cell: ServedCell) -> None:
    project = create(cell)
    action = {"action": "create", "file_path": "a.txt", "content": "a"}
    body = {"branch": "main", "commit_message": "First", "actions": [action], "force": True, "stats": False}
    answer = cell.api("POST", f"/projects/{project['id']}/repository/commits", body)
    assert (answer.status, "force" in answer.headers["X-Remuda-Ignored"]) == (201, True)


def test_a_project_with_a_readme(cell: ServedCell) -> None:
    project = create(cell, initialize_with_readme=True, default_branch="trunk", description="About it")
    assert (project["default_branch"], project["empty_repo"]) == ("trunk", False)
    readme = cell.api("GET", f"/projects/{project['id']}/repository/files/README.md/raw?ref=trunk")
    assert readme.body == b"# app\n\nAbout it\n"


def test_the_pipeline_file_and_the_payload_follow_the_settings(cell: ServedCell) -> None:
    project = create(
        cell, ci_config_path="ci/main.yml", build_git_strategy="clone", ci_default_git_depth=3,
        ci_separated_caches=False, build_timeout=1200,
    )  # fmt: skip
    commit_file(cell, project["id"], JOB, path="ci/main.yml", commit_message="First")
    job = cell.new_runner().take()
    assert (job["allow_git_fetch"], job["git_info"]["depth"], job["cache"][0]["key"]) == (False, 3, "k")
    assert job["runner_info"]["timeout"] == 1200
    variables = {variable["key"]: variable["value"] for variable in job["variables"]}
    assert variables["CI_CONFIG_PATH"] == "ci/main.yml"


def test_the_pipeline_file_of_another_project(cell: ServedCell) -> None:
    shared = create(cell, name="shared")
    commit_file(cell, shared["id"], "shared-job: {script: [echo]}\n", path="jobs.yml", commit_message="First")
    app = create(cell, ci_config_path="jobs.yml@root/shared:main")
    commit_file(cell, app["id"], "text", path="a.txt", commit_message="First")
    [job] = cell.api("GET", f"/projects/{app['id']}/jobs").json()
    assert job["name"] == "shared-job"


def test_only_some_may_set_variables(cell: ServedCell) -> None:
    project = create(cell, restrict_user_defined_variables=True)
    commit_file(cell, project["id"], JOB, commit_message="First")
    path = f"/projects/{project['id']}"
    ada = developer(cell, project)
    assert cell.api("POST", f"{path}/repository/branches", {"branch": "side", "ref": "main"}).status == 201
    request = {"ref": "side", "variables": [{"key": "A", "value": "b"}]}
    refused = ada.api("POST", f"{path}/pipeline", request)
    assert (refused.status, b"Insufficient permissions to set pipeline variables" in refused.body) == (400, True)
    assert ada.api("POST", f"{path}/pipeline", {"ref": "side"}).status == 201
    assert cell.api("POST", f"{path}/pipeline", request).status == 201


def test_an_archived_project_is_read_only(cell: ServedCell, tmp_path: Any) -> None:
    project = create(cell)
    commit_file(cell, project["id"], JOB, commit_message="First")
    path = f"/projects/{project['id']}"
    ada = developer(cell, project)
    assert ada.api("POST", f"{path}/archive").status == 403
    assert cell.api("POST", f"{path}/archive").json()["archived"] is True
    assert cell.api("GET", path).json()["archived"] is True
    assert cell.api("POST", f"{path}/variables", {"key": "A", "value": "b"}).status == 403
    assert cell.api("POST", f"{path}/pipeline", {"ref": "main"}).status == 403
    clone = Clone(tmp_path / "clone")
    clone.git("init", "-q")
    clone.git("pull", "-q", ada.address("root/app"), "main")
    assert "archived" in clone.run("push", ada.address("root/app"), "HEAD:refs/heads/x", ok=False).stderr
    assert cell.api("POST", f"{path}/unarchive").json()["archived"] is False
    assert cell.api("POST", f"{path}/pipeline", {"ref": "main"}).status == 201


def test_the_state_of_an_import(cell: ServedCell) -> None:
    project = create(cell)
    assert cell.api("GET", f"/projects/{project['id']}/import").json()["import_status"] == "none"


def test_python_gitlab(client: gitlab.Gitlab) -> None:
    project = client.projects.create({"name": "py", "topics": ["a"], "initialize_with_readme": True})
    project.ci_config_path = "x.yml"
    project.save()
    project.archive()
    assert client.projects.get(project.id).archived is True


def test_jobs_of_an_archived_project_finish_and_none_starts(cell: ServedCell) -> None:
    project = create(cell)
    path = f"/projects/{project['id']}"
    pipeline = "a: {script: [echo]}\nb: {script: [echo]}\nlast: {stage: deploy, script: [echo]}\n"
    runner = cell.new_runner()
    commit_file(cell, project["id"], pipeline, commit_message="First")
    running = runner.take()
    assert cell.api("POST", f"{path}/archive").status == 201
    assert runner.ask().status == 204
    jobs = {job["name"]: job for job in cell.api("GET", f"{path}/jobs").json()}
    waiting = "b" if running["job_info"]["name"] == "a" else "a"
    assert (jobs[waiting]["status"], jobs[waiting]["failure_reason"]) == ("failed", "archived_failure")
    why = cell.send("GET", f"/api/remuda/v1/jobs/{jobs[waiting]['id']}/why", PRIVATE_TOKEN=cell.token).json()
    assert "the project is archived" in why["summary"]
    assert why["advice"] == ["unarchive the project, then retry it"]
    assert runner.patch(running, 0, b"still running\n").status == 202
    assert runner.put(running, "success").status == 200
    assert cell.api("GET", f"{path}/jobs/{running['id']}").json()["status"] == "success"
    assert cell.api("POST", f"{path}/unarchive").status == 201
    assert cell.api("POST", f"{path}/jobs/{jobs[waiting]['id']}/retry").status == 201
    assert runner.take()["job_info"]["name"] == waiting


def test_a_trigger_job_of_an_archived_project_starts_nothing(cell: ServedCell) -> None:
    other = cell.api("POST", "/projects", {"name": "other"}).json()
    commit_file(cell, other["id"], JOB, commit_message="First")
    project = create(cell)
    path = f"/projects/{project['id']}"
    runner = cell.new_runner()
    downstream = "first: {stage: build, script: [echo]}\nnext: {stage: test, trigger: {project: root/other}}\n"
    commit_file(cell, project["id"], downstream, commit_message="First")
    jobs = {job["job_info"]["name"]: job for job in (runner.take(), runner.take())}
    assert cell.api("POST", f"{path}/archive").status == 201
    assert runner.put(jobs["first"], "success").status == 200
    [pipeline] = cell.api("GET", f"{path}/pipelines").json()
    bridges = f"{path}/pipelines/{pipeline['id']}/bridges"
    [bridge] = wait_until(lambda: [row for row in cell.api("GET", bridges).json() if row["status"] == "failed"])
    assert bridge["failure_reason"] == "archived_failure"
    assert len(cell.api("GET", f"/projects/{other['id']}/pipelines").json()) == 1
