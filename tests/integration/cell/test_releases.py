"""Releases that jobs, users and tools create."""

import gzip
import io
import zipfile
from typing import Any

import gitlab
import pytest
from tests.support.cells.people import add_member, create_person
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

PIPELINE = """
prepare:
  stage: build
  script: [make]
  artifacts: {paths: [notes.md], reports: {dotenv: build.env}}
publish:
  stage: deploy
  script: [echo releasing]
  rules: [{if: $CI_COMMIT_TAG, when: never}, {when: on_success}]
  release:
    tag_name: v$VERSION
    name: 'Release $VERSION'
    description: DESCRIPTION
    tag_message: 'Version $VERSION'
    assets:
      links: [{name: 'shop $VERSION', url: 'https://example.com/$VERSION.zip', link_type: package}]
"""


def archive(name: str, content: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(name, content)
    return buffer.getvalue()


def take_release_job(cell: ServedCell, runner: ScriptedRunner, description: str = "First one") -> dict[str, Any]:
    """Run the first job, which provides a version and notes, and take the job with the release."""
    cell.new_project("app", PIPELINE.replace("DESCRIPTION", description), **{"README.md": "Read me"})
    prepare = runner.take()
    runner.upload(prepare, archive("notes.md", "Notes of the job"))
    query = "?artifact_type=dotenv&artifact_format=gzip"
    assert runner.upload(prepare, gzip.compress(b"VERSION=1.0\n"), query=query).status == 201
    runner.put(prepare, "success")
    return runner.take()


def get_release(cell: ServedCell, tag: str = "v1.0") -> Answer:
    return cell.api("GET", f"/projects/1/releases/{tag}")


def test_a_successful_job_creates_its_release(cell: ServedCell, runner: ScriptedRunner) -> None:
    publish = take_release_job(cell, runner)
    assert [step["name"] for step in publish["steps"]] == ["script"]
    assert get_release(cell).status == 404
    for _ in range(2):
        done = runner.put(publish, "success")
        assert (done.status, done.headers["Job-Status"]) == (200, "success")
    release = get_release(cell).json()
    assert {key: release[key] for key in ("tag_name", "name", "description", "upcoming_release")} == {
        "tag_name": "v1.0",
        "name": "Release 1.0",
        "description": "First one",
        "upcoming_release": False,
    }
    assert release["commit"]["id"] == publish["git_info"]["sha"]
    assert [(link["name"], link["url"], link["link_type"]) for link in release["assets"]["links"]] == [
        ("shop 1.0", "https://example.com/1.0.zip", "package")
    ]
    # The tag starts its own pipeline, which has no job with a release.
    newest = cell.until_pipelines(2)[0]
    assert (newest["ref"], newest["source"]) == ("v1.0", "push")
    assert runner.take()["job_info"]["name"] == "prepare"


@pytest.mark.parametrize(
    ("description", "expected"),
    [("./notes.md", "Notes of the job"), ("README.md", "Read me"), ("missing.md", "missing.md"), ("v$VERSION", "v1.0")],
)
def test_a_description_may_be_a_file(cell: ServedCell, runner: ScriptedRunner, description: str, expected: str) -> None:
    runner.put(take_release_job(cell, runner, description), "success")
    assert get_release(cell).json()["description"] == expected


def test_a_failed_job_creates_no_release(cell: ServedCell, runner: ScriptedRunner) -> None:
    runner.put(take_release_job(cell, runner), "failed", failure_reason="script_failure")
    assert get_release(cell).status == 404


def test_a_release_that_cannot_be_created_fails_its_job(cell: ServedCell, runner: ScriptedRunner) -> None:
    publish = take_release_job(cell, runner)
    existing = {"tag_name": "v1.0", "ref": "main"}
    assert cell.api("POST", "/projects/1/releases", existing).status == 201
    for _ in range(2):
        done = runner.put(publish, "success")
        assert (done.status, done.headers["Job-Status"]) == (200, "failed")
    job = cell.api("GET", f"/projects/1/jobs/{publish['id']}").json()
    assert (job["status"], job["failure_reason"]) == ("failed", "script_failure")
    assert "the release could not be created: Release already exists: v1.0" in job["failure_message"]


ENDLESS = """
publish:
  script: [echo releasing]
  release: {tag_name: v$CI_PIPELINE_IID, description: again}
"""


def test_releases_do_not_start_pipelines_endlessly(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", ENDLESS)
    runner.put(runner.take(), "success")
    cell.until_pipelines(2)
    second = runner.take()
    assert second["git_info"]["ref"] == "v1"
    assert runner.put(second, "success").headers["Job-Status"] == "failed"
    job = cell.api("GET", f"/projects/1/jobs/{second['id']}").json()
    assert "would start pipelines without end" in job["failure_message"]
    assert [release["tag_name"] for release in cell.api("GET", "/projects/1/releases").json()] == ["v1"]


def test_a_pipeline_of_a_tag_releases_that_tag(cell: ServedCell, runner: ScriptedRunner) -> None:
    """This is the usual way to create a release."""
    cell.new_project("app", ENDLESS.replace("v$CI_PIPELINE_IID", "$CI_COMMIT_TAG"))
    first = runner.take()
    assert runner.put(first, "success").headers["Job-Status"] == "failed"
    message = cell.api("GET", f"/projects/1/jobs/{first['id']}").json()["failure_message"]
    assert "tag_name '$CI_COMMIT_TAG' expands to nothing" in message
    created = cell.api("POST", "/projects/1/releases", {"tag_name": "v2", "ref": "main", "tag_message": "Two"})
    assert created.status == 201
    assert cell.api("DELETE", "/projects/1/releases/v2").status == 200
    tag_job = runner.take()
    assert tag_job["git_info"]["ref_type"] == "tag"
    assert runner.put(tag_job, "success").headers["Job-Status"] == "success"
    assert get_release(cell, "v2").json()["description"] == "again"


def test_create_change_and_delete_releases(cell: ServedCell) -> None:
    cell.new_project("app", "", file="content")
    path = "/projects/1/releases"
    links = [{"name": "a", "url": "https://example.com/a"}]
    body = {"tag_name": "v1", "ref": "main", "description": "one", "assets": {"links": links}}
    assert cell.api("POST", path, body).status == 201
    assert cell.api("POST", path, body).status == 409
    upcoming = {"tag_name": "v2", "ref": "main", "released_at": "2999-01-01T00:00:00Z", "milestones": ["m"]}
    assert cell.api("POST", path, upcoming).json()["upcoming_release"] is True
    listed = cell.api("GET", path)
    assert [row["tag_name"] for row in listed.json()] == ["v2", "v1"]
    assert listed.headers["X-Total"] == "2"
    assert cell.api("GET", f"{path}/permalink/latest").json()["tag_name"] == "v1"
    changed = cell.api("PUT", f"{path}/v1", {"description": "changed"}).json()
    assert (changed["description"], changed["name"]) == ("changed", "v1")
    assert cell.api("DELETE", f"{path}/v1").json()["tag_name"] == "v1"
    assert cell.api("DELETE", f"{path}/v1").status == 404
    assert cell.api("GET", "/projects/1/releases/v9").status == 404


def test_the_author_of_a_release_is_its_creator(cell: ServedCell) -> None:
    project = cell.new_project("app", "", file="content")
    ada = create_person(cell, "ada")
    add_member(cell, f"projects/{project}", ada, 30)
    created = ada.api("POST", f"/projects/{project}/releases", {"tag_name": "v1", "ref": "main"}).json()
    assert created["author"]["username"] == "ada"
    assert get_release(cell, "v1").json()["author"] == created["author"]
    first = cell.api("POST", f"/projects/{project}/releases", {"tag_name": "v2", "ref": "main"}).json()
    assert first["author"]["username"] == "root"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"tag_name": "v1"}, 422),
        ({"tag_name": "v1", "ref": "nowhere"}, 422),
        ({"tag_name": "-bad..name", "ref": "main"}, 422),
        ({"tag_name": "v1", "ref": "main", "released_at": "yesterday"}, 400),
        ({"tag_name": "v1", "ref": "main", "assets": {"links": [{"name": "x", "url": "javascript:x"}]}}, 422),
        ({"tag_name": "v1", "ref": "main", "assets": {"links": [{"name": "x"}]}}, 400),
    ],
)
def test_invalid_releases(cell: ServedCell, body: dict[str, Any], status: int) -> None:
    cell.new_project("app", "", file="content")
    assert cell.api("POST", "/projects/1/releases", body).status == status
    assert cell.api("GET", "/projects/1/releases").json() == []


def test_a_job_may_release_its_own_project_alone(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", "job: {script: [release-cli create]}")
    cell.new_project("other", "", file="content")
    job = runner.take()
    body = {"tag_name": "v1", "ref": job["git_info"]["sha"]}
    assert cell.send("POST", "/api/v4/projects/1/releases", body).status == 401
    assert cell.send("POST", "/api/v4/projects/2/releases", body, JOB_TOKEN=job["token"]).status == 404
    assert cell.send("POST", "/api/v4/projects/1/releases", body, JOB_TOKEN=job["token"]).status == 201


def test_with_python_gitlab(cell: ServedCell) -> None:
    cell.new_project("app", "", file="content")
    with gitlab.Gitlab(cell.url, private_token=cell.token) as client:
        project = client.projects.get("root/app")
        project.releases.create({"tag_name": "v1", "ref": "main", "name": "One", "description": "first"})
        release = project.releases.get("v1")
        assert (release.name, release.commit["title"]) == ("One", "First commit")
        release.description = "changed"
        release.save()
        assert [row.description for row in project.releases.list(get_all=True)] == ["changed"]
        project.releases.delete("v1")
        assert project.releases.list(get_all=True) == []


@pytest.mark.parametrize(
    "time", ["9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00"]
)
def test_a_time_that_cannot_be_shown_is_refused(cell: ServedCell, time: str) -> None:
    project = f"/projects/{cell.new_project('app', readme='a')}"
    body = {"tag_name": "v1", "ref": "main", "description": "x", "released_at": time}
    assert cell.api("POST", f"{project}/releases", body).status == 400
    assert cell.api("GET", f"{project}/releases").json() == []


def test_parameters_that_a_release_does_not_have_are_told(cell: ServedCell) -> None:
    cell.new_project("app", a="x")
    link = {"name": "zip", "url": "https://example.com/a.zip", "direct_asset_path": "/a", "filepath": "/b"}
    release = {"tag_name": "v1", "ref": "main", "description": "One", "assets": {"links": [link], "sources": [1]}}
    made = cell.api("POST", "/projects/1/releases", release)
    told = "assets.links.direct_asset_path, assets.links.filepath, assets.sources"
    assert (made.status, made.headers["X-Remuda-Ignored"]) == (201, told)
    assert made.json()["assets"]["links"][0]["direct_asset_url"] == link["url"], "there is no other address"
    incomplete = cell.api("POST", "/projects/1/releases", release | {"tag_name": "v2", "assets": {"links": [{}]}})
    assert (incomplete.status, incomplete.json()["error"]) == (400, "assets[links][name] is missing")
    change = {"tag_name": "v1", "name": "First", "ref": "main", "tag_message": "x", "assets": {"links": [link]}}
    changed = cell.api("PUT", "/projects/1/releases/v1", change)
    assert (changed.status, changed.headers["X-Remuda-Ignored"]) == (200, "assets, ref, tag_message, tag_name")
