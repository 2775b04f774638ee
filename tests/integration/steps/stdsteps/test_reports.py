"""Uploads of archives and reports of a job to a real cell."""

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.step_jobs import RunStep


@pytest.fixture
def job(cell: ServedCell) -> dict[str, Any]:
    """A job that is assigned to a runner."""
    cell.new_project("app", "test: {script: [make test]}")
    return cell.new_runner().take()


@pytest.fixture
def blobs(tmp_path: Path) -> Callable[[str], bytes]:
    """Read the blob of this type that the cell has stored."""

    def read(kind: str) -> bytes:
        [path] = (tmp_path / "cell/blobs").rglob(f"{kind}-*")
        return path.read_bytes()

    return read


async def test_every_artifact_format_is_stored(
    run_step: RunStep, cell: ServedCell, job: dict[str, Any], blobs: Callable[[str], bytes], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "reports/deep").mkdir(parents=True)
    (work / "reports/b.xml").write_text("<testsuite name='b'/>")
    (work / "reports/deep/a.xml").write_text("<testsuite name='a'/>")
    (work / "build.env").write_text("VERSION=1.2\n")
    (work / "quality.json").write_text("[]")
    entries = [
        {"paths": ["reports/"], "name": "all", "artifact_type": "archive", "artifact_format": "zip"},
        {"paths": ["**/*.xml"], "name": "junit.xml", "artifact_type": "junit", "artifact_format": "gzip"},
        {"paths": ["build.env"], "name": ".env", "artifact_type": "dotenv", "artifact_format": "gzip"},
        {"paths": ["quality.json"], "name": "q.json", "artifact_type": "codequality", "artifact_format": "raw"},
    ]
    server = {"api_url": f"{cell.url}/api/v4", "job_id": job["id"], "token": job["token"]}
    for number, entry in enumerate(entries):
        for repeat in range(2):  # as a runner does if the response was lost
            seen = await run_step("artifacts_upload", server | entry, f"{number}-{repeat}")
            assert seen.check().status == "success", seen.lines
    assert seen.results[-1]["outputs"] == {"files": 1, "bytes": 2}
    view = cell.api("GET", f"/projects/1/jobs/{job['id']}").json()
    stored = {artifact["file_type"]: (artifact["file_format"], artifact["filename"]) for artifact in view["artifacts"]}
    assert stored == {
        "archive": ("zip", "all.zip"),
        "junit": ("gzip", "junit.xml.gz"),
        "dotenv": ("gzip", ".env.gz"),
        "codequality": ("raw", "q.json"),
    }
    assert zipfile.ZipFile(io.BytesIO(blobs("archive"))).namelist() == [
        "reports/",
        "reports/b.xml",
        "reports/deep/",
        "reports/deep/a.xml",
    ]
    assert gzip.decompress(blobs("junit")) == b"<testsuite name='b'/><testsuite name='a'/>"
    assert gzip.decompress(blobs("dotenv")) == b"VERSION=1.2\n"
    assert blobs("codequality") == b"[]"


async def test_missing_reports_warn(run_step: RunStep, cell: ServedCell, job: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "work/folder").mkdir(parents=True)
    server = {"api_url": f"{cell.url}/api/v4", "job_id": job["id"], "token": job["token"]}
    junit = {"paths": ["none.xml", "folder"], "artifact_type": "junit", "artifact_format": "gzip"}
    seen = await run_step("artifacts_upload", server | junit)
    assert seen.check().status == "success"
    assert seen.lines[0].startswith(b"WARNING: none.xml: no matching files")
    assert seen.lines[-1] == b"WARNING: No files to upload"
    assert cell.api("GET", f"/projects/1/jobs/{job['id']}").json()["artifacts"] == []
