"""python-gitlab as the client of a cell, with a scripted runner; and its tour of the examples with a real manager."""

import functools
import io
import runpy
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import gitlab
import pytest
from gitlab.v4.objects import Project
from tests.support.cells.served_cell import FEATURES, ScriptedRunner, ServedCell

from remuda.testing.lab import ADMIN_TOKEN, Lab

PIPELINE = """
stages: [build, test]
make:
  stage: build
  script: [echo made > made.txt]
  artifacts:
    paths: [made.txt]
check:
  stage: test
  script: [cat made.txt]
by-hand:
  stage: test
  when: manual
  script: [echo hand]
"""


def commit_pipeline(project: Project, message: str, content: str = PIPELINE) -> Any:
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": content}]
    return project.commits.create({"branch": "main", "commit_message": message, "actions": actions})


def an_archive(**files: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def test_from_a_commit_to_artifacts(cell: ServedCell, client: gitlab.Gitlab) -> None:
    client.auth()
    assert client.user
    assert client.user.username == "root"
    project = client.projects.create({"name": "Shop of horrors"})
    assert project.path_with_namespace == "root/Shop-of-horrors"
    commit = commit_pipeline(project, "Add a pipeline")
    created = client.user.runners.create({"runner_type": "instance_type", "tag_list": ["linux"], "run_untagged": True})
    runner = ScriptedRunner(cell, created.token)

    [pipeline] = project.pipelines.list(get_all=True)
    assert (pipeline.status, pipeline.sha, pipeline.source) == ("pending", commit.id, "push")
    first = runner.take()
    archive = an_archive(**{"made.txt": "made\n"})
    runner.put(first, "running")
    runner.patch(first, 0, b"making\n")
    assert runner.upload(first, archive).status == 201
    assert runner.put(first, "success", exit_code=0).status == 200

    second = runner.take()
    assert [dependency["id"] for dependency in second["dependencies"]] == [first["id"]]
    fetched = runner.download(second, of=first["id"])
    assert (fetched.status, fetched.body) == (200, archive)
    runner.patch(second, 0, b"made\n")
    runner.put(second, "success")

    pipeline.refresh()
    assert pipeline.status == "success"
    jobs = {job.name: job for job in pipeline.jobs.list(get_all=True)}
    assert {name: job.status for name, job in jobs.items()} == {
        "make": "success",
        "check": "success",
        "by-hand": "manual",
    }
    make = project.jobs.get(jobs["make"].id)
    assert make.trace() == b"making\n"
    assert make.artifacts() == archive
    assert make.artifacts_file == {"filename": "artifacts.zip", "size": len(archive)}
    assert make.commit["title"] == "Add a pipeline"
    assert make.pipeline["id"] == pipeline.id
    assert make.runner["id"] == created.id
    assert make.duration >= 0
    assert make.queued_duration >= 0

    project.jobs.get(jobs["by-hand"].id).play()
    assert runner.take()["job_info"]["name"] == "by-hand"


def test_cancel_by_force(cell: ServedCell, client: gitlab.Gitlab, runner: ScriptedRunner) -> None:
    cell.new_project("one", PIPELINE)
    taken = runner.take(info={"features": FEATURES | {"cancel_gracefully": True}})
    assert runner.put(taken, "running").status == 200
    job = client.projects.get("root/one").jobs.get(taken["id"])
    assert job.cancel()["status"] == "canceling"
    assert job.cancel(force=True)["status"] == "canceled"


def test_cancel_retry_and_further_pipelines(cell: ServedCell, client: gitlab.Gitlab, runner: ScriptedRunner) -> None:
    cell.new_project("one", PIPELINE)
    project = client.projects.get("root/one")
    first = project.pipelines.list(get_all=True)[0]
    first.cancel()
    first.refresh()
    assert first.status == "canceled"
    first.retry()
    first.refresh()
    assert first.status == "pending"
    failed = runner.take()
    runner.put(failed, "failed", failure_reason="script_failure")
    first.refresh()
    assert first.status == "failed"
    project.jobs.get(failed["id"]).retry()
    first.refresh()
    assert first.status in ("pending", "running")
    with pytest.raises(gitlab.GitlabJobRetryError) as refused:
        project.jobs.get(failed["id"]).retry()
    assert refused.value.response_code == 403
    with pytest.raises(gitlab.GitlabJobPlayError):
        project.jobs.get(failed["id"]).play()
    assert len(first.jobs.list(get_all=True)) == 3
    assert len(first.jobs.list(get_all=True, include_retried=True)) == 7
    assert [job.id for job in project.jobs.list(get_all=True, scope=["failed"])] == [failed["id"]]

    second = project.pipelines.create({"ref": "main", "variables": [{"key": "COLOUR", "value": "red"}]})
    assert (second.status, second.source) == ("pending", "api")
    assert [(variable.key, variable.value) for variable in second.variables.list(get_all=True)] == [("COLOUR", "red")]
    assert project.pipelines.latest().id == second.id
    for body in ({"ref": "nowhere"}, {"ref": "--all"}, {"ref": "refs/pipelines/1"}):
        with pytest.raises(gitlab.GitlabCreateError, match="Reference not found"):
            project.pipelines.create(body)


def test_a_broken_file_is_reported(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("broken", "job:\n  scrip: [echo]\n"))
    [pipeline] = project.pipelines.list(get_all=True)
    pipeline.refresh()
    assert pipeline.status == "failed"
    assert ".gitlab-ci.yml:2" in pipeline.yaml_errors
    assert pipeline.jobs.list(get_all=True) == []
    with pytest.raises(gitlab.GitlabCreateError, match="scrip"):
        project.pipelines.create({"ref": "main"})


def test_commits_that_start_nothing(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("quiet", README="no pipeline here"))
    assert project.pipelines.list(get_all=True) == []
    with pytest.raises(gitlab.GitlabCreateError, match="Missing CI config file"):
        project.pipelines.create({"ref": "main"})
    commit_pipeline(project, "Add it, but later [skip ci]")
    [pipeline] = project.pipelines.list(get_all=True)
    assert pipeline.status == "skipped"


def test_file_actions(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("files", **{"a.txt": "one", "dir/b.txt": "two"}))

    def commit(*actions: Mapping[str, object], branch: str = "main", **more: object) -> str:
        body = {"branch": branch, "commit_message": "Change files", "actions": list(actions), **more}
        return str(project.commits.create(body).id)

    def read(path: str, ref: str = "main") -> bytes:
        content = project.files.raw(file_path=path, ref=ref)
        assert isinstance(content, bytes)
        return content

    commit(
        {"action": "update", "file_path": "a.txt", "content": "AAEC", "encoding": "base64"},
        {"action": "move", "file_path": "dir/c.txt", "previous_path": "dir/b.txt"},
        {"action": "chmod", "file_path": "dir/c.txt", "execute_filemode": True},
        {"action": "create", "file_path": 'say "hi" \\ ü.txt', "content": "quoted"},
    )
    assert read("a.txt") == b"\x00\x01\x02"
    assert read("dir/c.txt") == b"two"
    assert read('say "hi" \\ ü.txt') == b"quoted"
    commit({"action": "delete", "file_path": "a.txt"}, branch="feature", start_branch="main")
    with pytest.raises(gitlab.GitlabGetError):
        read("a.txt", ref="feature")
    assert read("a.txt") == b"\x00\x01\x02"
    assert sorted(branch.name for branch in project.branches.list(get_all=True)) == ["feature", "main"]
    assert project.branches.get("main").default is True
    assert [row.title for row in project.commits.list(get_all=True)] == ["Change files", "First commit"]
    assert project.commits.get("feature").parent_ids == [project.commits.get("main").id]
    for wrong in (
        {"action": "create", "file_path": "a.txt", "content": ""},
        {"action": "update", "file_path": "missing", "content": ""},
        {"action": "create", "file_path": "dir", "content": ""},
        {"action": "create", "file_path": "a.txt/b", "content": ""},
        {"action": "dance", "file_path": "x", "content": ""},
        {"action": "create", "file_path": "x"},
        {"action": "create", "file_path": "x", "content": "%", "encoding": "base64"},
    ):
        with pytest.raises(gitlab.GitlabCreateError) as refused:
            commit(wrong)
        assert refused.value.response_code == 400
    with pytest.raises(gitlab.GitlabCreateError, match="on a branch"):
        commit({"action": "create", "file_path": "x", "content": ""}, branch="nowhere")


def test_the_same_commit_again_changes_nothing(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("again", PIPELINE))
    [before] = project.commits.list(get_all=True)
    again = commit_pipeline(project, "First commit")
    assert again.id == before.id
    assert len(project.pipelines.list(get_all=True)) == 1


def test_variables(cell: ServedCell, client: gitlab.Gitlab, runner: ScriptedRunner) -> None:
    project = client.projects.get(cell.new_project("vars"))
    project.variables.create({"key": "PLAIN", "value": "x"})
    secret = project.variables.create({"key": "SECRET", "value": "hunter2hunter2", "masked": True})
    assert (secret.masked, secret.value) == (True, "hunter2hunter2")
    for wrong in (
        {"key": "SECRET", "value": "again"},
        {"key": "S", "value": "short", "masked": True},
        {"key": "S", "value": "two lines\nof text", "masked": True},
        {"key": "S", "value": "dollar$sign", "masked": True},
        {"key": "no-name", "value": "x"},
    ):
        with pytest.raises(gitlab.GitlabCreateError) as refused:
            project.variables.create(wrong)
        assert refused.value.response_code == 400
    missing = cell.api("POST", f"/projects/{project.id}/variables", {})
    assert (missing.status, missing.json()) == (400, {"error": "key is missing, value is missing"})
    project.variables.create({"key": "RAW", "value": "dollar$sign", "masked": True, "raw": True})
    project.variables.update("PLAIN", {"value": "y", "variable_type": "file"})
    assert project.variables.get("PLAIN").variable_type == "file"
    project.variables.delete("RAW")
    assert [variable.key for variable in project.variables.list(get_all=True)] == ["PLAIN", "SECRET"]
    with pytest.raises(gitlab.GitlabGetError):
        project.variables.get("RAW")
    commit_pipeline(project, "Run", "a:\n  script: [env]\n")
    sent = {variable["key"]: variable for variable in runner.take()["variables"]}
    assert sent["SECRET"]["masked"] is True
    assert sent["PLAIN"]["file"] is True


def test_runners(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project_id = cell.new_project("own", PIPELINE)
    shared = cell.new_runner(description="shared", paused=True)
    created = cell.api(
        "POST", "/user/runners", {"runner_type": "project_type", "project_id": project_id, "tag_list": "a"}
    )
    assert created.status == 201
    assert [row.description for row in client.runners_all.list(get_all=True)] == ["", "shared"]
    runner = client.runners.get(created.json()["id"])
    assert (runner.runner_type, runner.tag_list) == ("project_type", ["a"])
    assert shared.ask().status == 204
    [listed] = [row for row in client.runners.list(get_all=True) if row.description == "shared"]
    client.runners.update(listed.id, {"paused": False, "tag_list": ["x"]})
    assert shared.ask().status == 201
    client.runners.delete(listed.id)
    assert shared.ask().status == 403
    for wrong, status in (
        ({}, 400),
        ({"runner_type": "group_type"}, 400),
        ({"runner_type": "project_type"}, 400),
        ({"runner_type": "project_type", "project_id": 99}, 404),
    ):
        assert cell.api("POST", "/user/runners", wrong).status == status


def test_pages(cell: ServedCell, client: gitlab.Gitlab) -> None:
    for number in range(25):
        cell.new_project(f"p{number}")
    first = cell.api("GET", "/projects?per_page=10&search=p")
    assert [project["path"] for project in first.json()[:2]] == ["p24", "p23"]
    paging = {name: first.headers[f"X-{name}"] for name in ("Total", "Total-Pages", "Page", "Next-Page", "Prev-Page")}
    assert paging == {"Total": "25", "Total-Pages": "3", "Page": "1", "Next-Page": "2", "Prev-Page": ""}
    assert 'rel="next"' in first.headers["Link"]
    assert len(client.projects.list(get_all=True, per_page=10)) == 25
    assert len(list(client.projects.list(iterator=True, per_page=7))) == 25
    assert cell.api("GET", "/projects?page=99").json() == []
    assert len(cell.api("GET", "/projects?per_page=1000000").json()) == 25
    for wrong in ("page=0", "page=x", "per_page=-1", "page=%00"):
        assert cell.api("GET", f"/projects?{wrong}").status == 400


def test_authentication(cell: ServedCell) -> None:
    assert cell.send("GET", "/api/v4/user").status == 401
    assert cell.send("GET", "/api/v4/user", PRIVATE_TOKEN="wrong").json() == {"message": "401 Unauthorized"}
    assert cell.send("GET", "/api/v4/user", PRIVATE_TOKEN=cell.token[:-1]).status == 401
    assert cell.send("GET", "/api/v4/user", Authorization=f"Bearer {cell.token}").json()["is_admin"] is True
    assert cell.send("GET", "/api/v4/user", Authorization=f"Basic {cell.token}").status == 401
    assert cell.send("GET", "/api/v4/version", PRIVATE_TOKEN=cell.token).json()["version"]
    assert cell.send("GET", "/api/v4/metadata", PRIVATE_TOKEN=cell.token).json()["enterprise"] is False


TOUR = Path(__file__).parents[3] / "examples" / "python-gitlab" / "tour.py"
MINIMUM_CALLS = 125
"""Number of different library calls. Clients of GitLab must keep working, so the tour must not shrink."""


def library_calls(seen: set[str]) -> Callable[[FrameType, str, Any], None]:
    """Create a profiler that records which methods of the library the tour itself calls."""

    def record(frame: FrameType, event: str, _: Any) -> None:
        caller = frame.f_back
        if event != "call" or caller is None or caller.f_code.co_filename != str(TOUR):
            return
        if "/gitlab/" not in frame.f_code.co_filename or frame.f_code.co_name.startswith("__"):
            return
        variables = frame.f_locals
        owner = variables.get("self") or next(iter(variables.get("args", ())), None)
        # Most methods are wrapped to convert errors; in the wrapper the method is the variable `f`.
        name = getattr(variables.get("f"), "__name__", frame.f_code.co_name)
        if callable(getattr(type(owner), name, None)):
            seen.add(f"{type(owner).__name__}.{name}")

    return record


def test_the_tour(tmp_path: Path) -> None:
    seen: set[str] = set()
    with Lab(tmp_path) as lab:
        main = functools.partial(runpy.run_path(str(TOUR))["main"], lab.url, ADMIN_TOKEN)
        sys.setprofile(library_calls(seen))
        try:
            main()
        finally:
            sys.setprofile(None)
    print(f"{len(seen)} different calls: {', '.join(sorted(seen))}")
    assert len(seen) >= MINIMUM_CALLS
    for call in (
        "ProjectManager.create",
        "ProjectPipelineManager.create",
        "ProjectPipeline.delete",
        "ProjectJob.trace",
        "ProjectJob.artifact",
        "ProjectVariableManager.get",
        "RunnerManager.verify",
        "ProjectFile.save",
    ):
        assert call in seen
