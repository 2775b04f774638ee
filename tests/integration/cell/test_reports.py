"""Reports and single files of artifacts, dotenv variables, and needs of other projects, over HTTP."""

import gzip
import io
import zipfile
from typing import Any

import gitlab
import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

PIPELINE = """
build:
  stage: build
  script: [make]
  artifacts:
    paths: [out]
    reports: {dotenv: build.env, junit: out/*.xml}
use:
  stage: test
  variables: {VERSION: from the file}
  script: [use]
"""
DOTENV = "?artifact_type=dotenv&artifact_format=gzip"
JUNIT = "?artifact_type=junit&artifact_format=gzip"


def archive(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name.replace("__", "/"), content)
    return buffer.getvalue()


@pytest.fixture
def build(cell: ServedCell, runner: ScriptedRunner) -> dict[str, Any]:
    """The job of the first stage, which a runner has taken."""
    cell.new_project("app", PIPELINE)
    return runner.take()


def test_the_payload_asks_for_each_report(build: dict[str, Any]) -> None:
    assert [(artifact["artifact_type"], artifact["artifact_format"]) for artifact in build["artifacts"]] == [
        ("archive", "zip"),
        ("dotenv", "gzip"),
        ("junit", "gzip"),
    ]


def test_variables_go_to_later_jobs(cell: ServedCell, runner: ScriptedRunner, build: dict[str, Any]) -> None:
    packed = gzip.compress(b"VERSION=1.2\nGREETING=hello world\n", mtime=0)
    assert runner.upload(build, packed, filename=".env.gz", query=DOTENV).status == 201
    assert runner.upload(build, packed, filename=".env.gz", query=DOTENV).status == 201
    runner.put(build, "success")
    variables = {variable["key"]: variable for variable in runner.take()["variables"]}
    assert (variables["VERSION"]["value"], variables["GREETING"]["value"]) == ("1.2", "hello world")


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        (gzip.compress(b"A=1\nno variable\n", mtime=0), 400, "line 2 has no ="),
        (gzip.compress(b"A=" + b"x" * 10_000_000, mtime=0), 400, "limit of 5120 bytes"),
        (b"A=" + b"x" * 10_000, 400, "raise dotenv_limit_bytes"),
        (b"A=" + b"x" * 500_000, 413, "limit of 5120 bytes; leave only what later jobs need, or raise dotenv_"),
        (b"A=" + b"x" * 5_000_000, 413, "raise dotenv_limit_bytes"),
        (b"\n".join(b"V%d=1" % number for number in range(51)), 400, "raise dotenv_limit_variables"),
        (b"\x1f\x8brubbish", 400, "not a whole gzip file"),
    ],
)
def test_a_bad_dotenv_report_is_refused(
    cell: ServedCell, runner: ScriptedRunner, build: dict[str, Any], content: bytes, status: int, reason: str
) -> None:
    refused = runner.upload(build, content, filename=".env.gz", query=DOTENV)
    assert refused.status == status
    assert reason in refused.json()["message"]
    assert [path for path in (cell.settings.data / "blobs").rglob("*") if path.is_file()] == []
    assert runner.upload(build, gzip.compress(b"A=1\n", mtime=0), query=DOTENV).status == 201


def test_download_of_reports_and_single_files(cell: ServedCell, runner: ScriptedRunner, build: dict[str, Any]) -> None:
    content = archive(out__hello="hi", **{"out__with space": "there"})
    runner.upload(build, content)
    runner.upload(build, b"report", filename="junit.xml.gz", query=JUNIT)
    job = f"/projects/1/jobs/{build['id']}"
    assert cell.api("GET", f"{job}/artifacts").body == content
    report = cell.api("GET", f"{job}/artifacts?file_type=junit")
    assert (report.body, report.headers["Content-Type"]) == (b"report", "application/gzip")
    assert cell.api("GET", f"{job}/artifacts?file_type=dotenv").status == 404
    file = cell.api("GET", f"{job}/artifacts/out/hello")
    assert (file.status, file.body, file.headers["Content-Length"]) == (200, b"hi", "2")
    assert cell.api("GET", f"{job}/artifacts/out/with%20space").body == b"there"
    assert cell.api("GET", f"{job}/artifacts/out/missing").status == 404
    assert cell.api("GET", f"{job}/artifacts/..%2f..%2fcell.sqlite").status == 404
    assert cell.send("GET", f"/api/v4{job}/artifacts/out/hello").status == 401
    artifacts = cell.api("GET", job).json()["artifacts"]
    assert [(artifact["file_type"], artifact["filename"]) for artifact in artifacts] == [
        ("archive", "artifacts.zip"),
        ("junit", "junit.xml.gz"),
    ]


def test_artifacts_by_the_name_of_a_ref(cell: ServedCell, runner: ScriptedRunner, build: dict[str, Any]) -> None:
    path = "/projects/root%2Fapp/jobs/artifacts/main"
    content = archive(hello="hi")
    runner.upload(build, content)
    assert cell.api("GET", f"{path}/download?job=build").status == 404
    runner.put(build, "success")
    assert cell.api("GET", f"{path}/download?job=build").body == content
    assert cell.api("GET", f"{path}/raw/hello?job=build").body == b"hi"
    assert cell.api("GET", f"{path}/download").status == 400
    assert cell.api("GET", f"{path}/download?job=other").status == 404
    use = runner.take()
    by_job = cell.send("GET", f"/api/v4{path}/raw/hello?job=build", JOB_TOKEN=use["token"])
    assert (by_job.status, by_job.body) == (200, b"hi")
    assert cell.send("GET", f"/api/v4{path}/raw/hello?job=build").status == 401


ELSEWHERE = """
use:
  script: [use]
  needs:
    - {project: root/app, job: build, ref: main, artifacts: true}
other:
  script: [other]
"""


def test_a_need_of_another_project(cell: ServedCell, runner: ScriptedRunner, build: dict[str, Any]) -> None:
    content = archive(hello="hi")
    runner.upload(build, content)
    runner.put(build, "success")
    runner.put(runner.take(), "success")
    cell.disable_job_token_allowlist("root/app")
    cell.new_project("elsewhere", ELSEWHERE)
    taken = {job["job_info"]["name"]: job for job in (runner.take(), runner.take())}
    use, other = taken["use"], taken["other"]
    assert [(dependency["id"], dependency["name"]) for dependency in use["dependencies"]] == [(build["id"], "build")]
    assert runner.download(use, of=build["id"]).body == content
    assert runner.download(other, of=build["id"]).status == 403
    shop = "/api/v4/projects/root%2Fapp/jobs/artifacts/main/download?job=build"
    assert cell.send("GET", shop, JOB_TOKEN=other["token"]).status == 404


def test_a_need_of_a_missing_project(cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("elsewhere", ELSEWHERE)
    assert runner.ask().status == 204
    assert runner.take()["job_info"]["name"] == "other"
    jobs = {job["name"]: job for job in cell.api("GET", f"/projects/{project}/jobs").json()}
    assert jobs["use"]["failure_reason"] == "missing_dependency_failure"
    assert 'project "root/app", which does not exist' in jobs["use"]["failure_message"]


def test_with_python_gitlab(cell: ServedCell, runner: ScriptedRunner, build: dict[str, Any]) -> None:
    content = archive(out__hello="hi")
    runner.upload(build, content)
    runner.put(build, "success")
    with gitlab.Gitlab(cell.url, private_token=cell.token) as client:
        project = client.projects.get("root/app")
        job = project.jobs.get(build["id"])
        assert job.artifacts() == content
        assert job.artifact("out/hello") == b"hi"
        assert project.artifacts.download(ref_name="main", job="build") == content
        assert project.artifacts.raw(ref_name="main", artifact_path="out/hello", job="build") == b"hi"
