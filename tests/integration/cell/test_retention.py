"""What remains of a finished job: archived traces, artifacts that expire, and what users keep and erase."""

import gzip
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gitlab
import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.testing.waiting import wait_until

PIPELINE = """
make:
  stage: build
  script: [make]
  artifacts: {paths: [out], expire_in: 1 week, reports: {junit: report.xml}}
use: {stage: test, script: [use], when: manual}
"""
REPORT = b"""<testsuite><testcase name="good" classname="a" time="1.5"/>
<testcase name="bad" classname="a" file="a.py"><failure message="no">trace</failure></testcase>
<testcase name="odd"><error>what</error></testcase><testcase name="not"><skipped/></testcase></testsuite>"""


def archive(**files: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(zipfile.ZipInfo("out/"), b"")
        for name, text in files.items():
            file.writestr(f"out/{name}.txt", text)
    return packed.getvalue()


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[ServedCell]:
    with ServedCell(tmp_path / "cell", upkeep_seconds=0.05) as served:
        yield served


@pytest.fixture
def job(cell: ServedCell, runner: ScriptedRunner) -> dict[str, Any]:
    """A successful job that wrote a log and uploaded an archive and a report."""
    cell.new_project("app", PIPELINE)
    job = runner.take()
    assert runner.patch(job, 0, b"hello\nworld\n").status == 202
    assert runner.upload(job, archive(a="first", b="second"), query="?expire_in=1+week").status == 201
    report = "?artifact_type=junit&artifact_format=gzip&expire_in=1+week"
    assert runner.upload(job, gzip.compress(REPORT), filename="junit.xml.gz", query=report).status == 201
    assert runner.put(job, "success").status == 200
    return job


def list_files(cell: ServedCell, folder: str) -> list[str]:
    return sorted(path.name for path in (cell.settings.data / folder).rglob("*") if path.is_file())


def until_archived(cell: ServedCell, job: dict[str, Any]) -> None:
    wait_until(lambda: list_files(cell, "traces") == [], "the trace is archived")
    assert f"{job['id']}.log" in list_files(cell, "blobs/kept/traces")


def test_an_archived_trace_is_served_like_before(cell: ServedCell, runner: ScriptedRunner, job: dict[str, Any]) -> None:
    path = f"/projects/1/jobs/{job['id']}/trace"
    until_archived(cell, job)
    whole = cell.api("GET", path)
    assert (whole.status, whole.body) == (200, b"hello\nworld\n")
    tag = whole.headers["ETag"]
    assert cell.api("GET", path, If_None_Match=tag).status == 304
    assert cell.api("GET", path, If_None_Match=f'W/{tag}, "other"').status == 304
    assert cell.api("GET", path, If_None_Match='"other"').status == 200
    part = cell.api("GET", path, Range="bytes=6-10", If_Range=tag)
    assert (part.status, part.body, part.headers["Content-Range"]) == (206, b"world", "bytes 6-10/12")
    assert cell.api("GET", path, Range="bytes=6-10", If_Range='"other"').status == 200
    assert cell.api("GET", path, Range="bytes=-6").body == b"world\n"
    beyond = cell.api("GET", path, Range="bytes=12-")
    assert (beyond.status, beyond.headers["Content-Range"]) == (416, "bytes */12")
    followed = cell.send("GET", f"/api/remuda/v1/jobs/{job['id']}/trace?offset=6", PRIVATE_TOKEN=cell.token)
    assert (followed.body, followed.headers["X-Remuda-Job-State"]) == (b"world\n", "success")
    assert runner.patch(job, 6, b"world\n").status == 202
    assert runner.patch(job, 6, b"other\n").status == 403
    assert runner.put(job, "success").status == 200


def test_the_etag_of_a_growing_trace_changes(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", PIPELINE)
    job = runner.take()
    path = f"/projects/1/jobs/{job['id']}/trace"
    empty = cell.api("GET", path)
    assert (empty.status, empty.body) == (200, b"")
    runner.patch(job, 0, b"hello\n")
    first = cell.api("GET", path, If_None_Match=empty.headers["ETag"])
    assert (first.status, first.body) == (200, b"hello\n")
    assert cell.api("GET", path, If_None_Match=first.headers["ETag"]).status == 304
    runner.patch(job, 6, b"world\n")
    more = cell.api("GET", path, If_None_Match=first.headers["ETag"], Range="bytes=6-")
    assert (more.status, more.body) == (206, b"world\n")


def test_artifacts_have_an_expiry_time_and_can_be_kept(cell: ServedCell, job: dict[str, Any]) -> None:
    path = f"/projects/1/jobs/{job['id']}"
    before = cell.api("GET", path).json()
    assert before["artifacts_expire_at"] > before["created_at"]
    response = cell.api("POST", f"{path}/artifacts/keep")
    assert (response.status, response.json()["artifacts_expire_at"]) == (200, None)
    assert cell.api("GET", path).json()["artifacts_expire_at"] is None
    assert cell.api("POST", f"/projects/1/jobs/{job['id'] + 1}/artifacts/keep").status == 404


def test_jobs_that_need_deleted_artifacts_fail(cell: ServedCell, runner: ScriptedRunner, job: dict[str, Any]) -> None:
    path = f"/projects/1/jobs/{job['id']}"
    assert cell.api("DELETE", f"{path}/artifacts").status == 204
    assert cell.api("DELETE", f"{path}/artifacts").status == 204
    assert cell.api("GET", f"{path}/artifacts").status == 404
    assert cell.api("GET", f"{path}/trace").body == b"hello\nworld\n"
    assert list_files(cell, "blobs/kept/artifacts") == []
    use = next(row for row in cell.api("GET", "/projects/1/jobs").json() if row["name"] == "use")
    assert cell.api("POST", f"/projects/1/jobs/{use['id']}/play").status == 200
    assert runner.ask().status == 204
    assert cell.api("GET", f"/projects/1/jobs/{use['id']}").json()["failure_reason"] == "missing_dependency_failure"


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_erased_job_has_no_trace_and_no_artifacts(cell: ServedCell, job: dict[str, Any], when: str) -> None:
    path = f"/projects/1/jobs/{job['id']}"
    if when == "after":
        until_archived(cell, job)
    erased = cell.api("POST", f"{path}/erase")
    assert erased.status == 201
    assert erased.json()["erased_at"]
    assert erased.json()["artifacts"] == []
    assert (cell.api("GET", f"{path}/trace").status, cell.api("GET", f"{path}/trace").body) == (200, b"")
    assert cell.api("GET", f"{path}/artifacts").status == 404
    assert list_files(cell, "blobs") == []
    again = cell.api("POST", f"{path}/erase")
    assert (again.status, again.json()["message"]) == (403, "403 Forbidden - Job is not erasable!")
    assert cell.api("POST", f"/projects/1/jobs/{job['id'] + 1}/erase").status == 403


def test_the_files_of_an_archive_are_listed(cell: ServedCell, job: dict[str, Any]) -> None:
    def get_files(query: str = "") -> Any:
        return cell.send("GET", f"/api/remuda/v1/jobs/{job['id']}/artifacts/files{query}", PRIVATE_TOKEN=cell.token)

    answer = get_files()
    assert answer.headers["X-Total"] == "3"
    assert [(file["path"], file["size"], file["is_folder"]) for file in answer.json()] == [
        ("out/", 0, True),
        ("out/a.txt", 5, False),
        ("out/b.txt", 6, False),
    ]
    assert [file["path"] for file in get_files("?per_page=1&page=3").json()] == ["out/b.txt"]
    assert cell.send("GET", f"/api/remuda/v1/jobs/{job['id']}/artifacts/files").status == 401
    other = cell.send("GET", f"/api/remuda/v1/jobs/{job['id'] + 1}/artifacts/files", PRIVATE_TOKEN=cell.token)
    assert other.status == 404


def test_with_python_gitlab(cell: ServedCell, job: dict[str, Any]) -> None:
    project = gitlab.Gitlab(cell.url, private_token=cell.token).projects.get(1)
    pipeline = project.pipelines.list(get_all=True)[0]
    report = pipeline.test_report.get()
    assert (report.total_count, report.success_count, report.failed_count) == (4, 1, 1)
    assert (report.error_count, report.skipped_count, report.total_time) == (1, 1, 1.5)
    (suite,) = report.test_suites
    assert (suite["name"], suite["suite_error"]) == ("make", None)
    assert [case["status"] for case in suite["test_cases"]] == ["success", "failed", "error", "skipped"]
    assert suite["test_cases"][1] == {
        "status": "failed",
        "name": "bad",
        "classname": "a",
        "file": "a.py",
        "execution_time": 0.0,
        "system_output": "no\ntrace",
        "stack_trace": None,
    }
    summary = pipeline.test_report_summary.get()
    assert summary.total == {
        "time": 1.5,
        "count": 4,
        "success": 1,
        "failed": 1,
        "skipped": 1,
        "error": 1,
        "suite_error": None,
    }
    assert summary.test_suites[0]["build_ids"] == [job["id"]]
    finished_job = project.jobs.get(job["id"])
    assert finished_job.artifact("out/a.txt") == b"first"
    finished_job.keep_artifacts()
    finished_job.delete_artifacts()
    finished_job.erase()
    assert project.jobs.get(job["id"]).attributes["artifacts"] == []
    assert finished_job.trace() == b""
    assert pipeline.test_report.get().test_suites == []


def test_an_unreadable_report_does_not_affect_others(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", "unit 1/2: {script: [a]}\nunit 2/2: {script: [a]}\nlint: {script: [a]}\n")
    report = "?artifact_type=junit&artifact_format=gzip"
    contents = {"unit 1/2": gzip.compress(REPORT), "unit 2/2": gzip.compress(REPORT), "lint": b"rubbish"}
    for _ in contents:
        job = runner.take()
        runner.upload(job, contents[job["job_info"]["name"]], filename="junit.xml.gz", query=report)
        runner.put(job, "success")
    summary = cell.api("GET", "/projects/1/pipelines/1/test_report_summary").json()
    suites = {suite["name"]: suite for suite in summary["test_suites"]}
    assert (suites["unit"]["total_count"], len(suites["unit"]["build_ids"])) == (8, 2)
    assert suites["lint"]["total_count"] == 0
    assert suites["lint"]["suite_error"].startswith("JUnit XML parsing failed: it is damaged")
    assert summary["total"]["count"] == 8
