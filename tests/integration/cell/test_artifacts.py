"""Uploads and downloads of artifacts over HTTP: streaming, size limits, access, and no partial files."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

PIPELINE = """
make:
  stage: build
  script: [make]
  artifacts: {paths: [out]}
other:
  stage: build
  script: [make]
  artifacts: {paths: [out]}
use:
  stage: test
  needs: [make]
  script: [use]
"""


@pytest.fixture
def jobs(cell: ServedCell, runner: ScriptedRunner) -> dict[str, dict[str, Any]]:
    """The two jobs of the first stage, which a runner has taken."""
    cell.new_project("app", PIPELINE)
    taken = [runner.take(), runner.take()]
    return {job["job_info"]["name"]: job for job in taken}


def list_blobs(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


def send_raw(cell: ServedCell, job: dict[str, Any], body: bytes, content_type: str) -> Answer:
    path = f"/api/v4/jobs/{job['id']}/artifacts"
    return cell.send("POST", path, body, JOB_TOKEN=job["token"], Content_Type=content_type)


def test_transfer_of_a_large_file(cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, dict[str, Any]]) -> None:
    content = bytes(range(256)) * 40_000
    uploaded = runner.upload(jobs["make"], content, filename="../..\\evil/päck.zip", query="?expire_in=1+week")
    assert uploaded.status == 201
    assert uploaded.headers["Content-Type"] == "application/json"
    path = f"/projects/1/jobs/{jobs['make']['id']}"
    assert cell.api("GET", path).json()["artifacts_file"] == {"filename": "päck.zip", "size": len(content)}
    answer = cell.api("GET", f"{path}/artifacts")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/zip")
    assert answer.headers["Content-Length"] == str(len(content))
    assert answer.body == content
    by_user = cell.api("GET", f"/jobs/{jobs['make']['id']}/artifacts")
    assert by_user.body == content


def test_a_broken_download_is_continued(
    cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, dict[str, Any]]
) -> None:
    content = bytes(range(256)) * 10_000
    runner.upload(jobs["make"], content)
    for path in (f"/projects/1/jobs/{jobs['make']['id']}/artifacts", f"/jobs/{jobs['make']['id']}/artifacts"):
        whole = cell.api("GET", path)
        assert (whole.status, whole.headers["Accept-Ranges"]) == (200, "bytes")
        tag = whole.headers["ETag"]
        rest = cell.api("GET", path, Range="bytes=2000000-", If_Range=tag)
        assert (rest.status, rest.body) == (206, content[2_000_000:])
        assert rest.headers["Content-Range"] == f"bytes 2000000-{len(content) - 1}/{len(content)}"
        assert rest.headers["Content-Disposition"] == whole.headers["Content-Disposition"]
        assert cell.api("GET", path, Range="bytes=2-", If_Range='"other"').body == content
        assert cell.api("GET", path, Range="bytes=0-1,4-5").body == content
        beyond = cell.api("GET", path, Range=f"bytes={len(content)}-")
        assert (beyond.status, beyond.headers["Content-Range"]) == (416, f"bytes */{len(content)}")
        assert cell.api("GET", path, If_None_Match=tag).status == 304


def test_who_may_download(cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, dict[str, Any]]) -> None:
    make, other = jobs["make"], jobs["other"]
    runner.upload(make, b"made")
    runner.upload(other, b"other")
    assert runner.download(make, of=make["id"]).body == b"made"
    assert runner.download(other, of=make["id"]).status == 403
    runner.put(make, "success")
    use = runner.take()
    assert runner.download(use, of=make["id"]).body == b"made"
    assert runner.download(use, of=other["id"]).status == 403
    assert runner.download(use, of=9999).status == 404
    assert runner.download({"token": "glcbt-nonsense"}, of=make["id"]).status == 403
    assert cell.send("GET", f"/api/v4/jobs/{make['id']}/artifacts").status == 401
    cell.new_project("elsewhere", PIPELINE.replace("[make]\n  artifacts", "[make]\n  artifacts", 1))
    foreign = runner.take()
    assert runner.download(foreign, of=make["id"]).status == 403
    assert cell.api("GET", f"/projects/1/jobs/{use['id']}/artifacts").status == 404


def test_second_upload_of_same_type(cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, dict[str, Any]]) -> None:
    make = jobs["make"]
    assert runner.upload(make, b"made").status == 201
    assert runner.upload(make, b"made").status == 201
    assert runner.upload(make, b"made otherwise").status == 400
    report = "?artifact_type=junit&artifact_format=gzip"
    assert runner.upload(make, b"report", filename="junit.xml.gz", query=report).status == 201
    assert cell.api("GET", f"/projects/1/jobs/{make['id']}/artifacts").body == b"made"
    assert len(list_blobs(cell.settings.data)) == 2
    assert runner.upload(make, b"x", query="?artifact_type=virus").status == 400
    assert runner.upload(make, b"x", query="?artifact_format=rar").status == 400


def test_too_large_a_file_leaves_nothing_behind(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", artifact_limit_bytes=100_000) as cell:
        cell.new_project("app", PIPELINE)
        runner = cell.new_runner()
        job = runner.take()
        for size in (100_001, 30_000_000):
            refused = runner.upload(job, b"x" * size)
            assert refused.status == 413, refused
            assert "limit of 100000 bytes" in refused.json()["message"]
        refused_by_length = send_raw(cell, job, b"x" * 2_000_000, "multipart/form-data; boundary=b")
        assert refused_by_length.status == 413
        assert list_blobs(tmp_path / "cell") == []
        assert cell.api("GET", f"/projects/1/jobs/{job['id']}").json()["artifacts"] == []
        assert runner.upload(job, b"x" * 100_000).status == 201


PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\nbytes\r\n'


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (PART, "multipart/form-data; boundary=b"),
        (PART[:-9], "multipart/form-data; boundary=b"),
        (PART + PART + b"--b--\r\n", "multipart/form-data; boundary=b"),
        (PART.replace(b'"file"', b'"data"') + b"--b--\r\n", "multipart/form-data; boundary=b"),
        (b"", "multipart/form-data; boundary=b"),
        (b"rubbish that is no part", "multipart/form-data; boundary=b"),
        (PART + b"--b--\r\n", "multipart/form-data"),
        (PART + b"--b--\r\n", "multipart/form-data; boundary=" + "b" * 5000),
        (PART + b"--b--\r\n", "application/zip"),
        (PART + b"--b--\r\n", ""),
    ],
)
def test_malformed_uploads(cell: ServedCell, jobs: dict[str, dict[str, Any]], body: bytes, content_type: str) -> None:
    answer = send_raw(cell, jobs["make"], body, content_type)
    assert answer.status == 400, answer
    assert "message" in answer.json()
    assert list_blobs(cell.settings.data) == []


def test_other_form_parts_are_unused(cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, dict[str, Any]]) -> None:
    field = b'--b\r\nContent-Disposition: form-data; name="accessibility"\r\n\r\nprivate\r\n'
    answer = send_raw(cell, jobs["make"], field + PART + b"--b--\r\n", "multipart/form-data; boundary=b")
    assert answer.status == 201
    assert runner.download(jobs["make"], of=jobs["make"]["id"]).body == b"bytes"


def test_finished_jobs_cannot_upload(cell: ServedCell, runner: ScriptedRunner, jobs: dict[str, dict[str, Any]]) -> None:
    runner.put(jobs["make"], "success")
    assert runner.upload(jobs["make"], b"late").status == 403
    assert list_blobs(cell.settings.data) == []
