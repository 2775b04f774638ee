"""A cell keeps its blobs (artifacts, archived traces and LFS objects) in a bucket of a real S3 server."""

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.built_programs import require_built
from tests.support.cells.lfs_client import Lfs, basic
from tests.support.cells.served_cell import ScriptedRunner, ServedCell
from tests.support.servers.s3_server import PROGRAM, S3Server

from remuda.cell.blobs.object_storage import open_bucket
from remuda.cell.errors import CellError
from remuda.testing.waiting import wait_until

PIPELINE = """
make: {stage: build, script: [make], artifacts: {paths: [out]}}
use: {stage: test, script: [use]}
"""
MEBIBYTE = 1024 * 1024


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    require_built(PROGRAM)
    with S3Server(tmp_path / "buckets") as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        served.new_bucket("remuda")
        yield served


@pytest.fixture
def cell(tmp_path: Path, server: S3Server) -> Iterator[ServedCell]:
    with ServedCell(
        tmp_path / "cell", blobs="s3://remuda/cell-1", blobs_endpoint=server.endpoint, upkeep_seconds=0.1
    ) as served:
        yield served


def object_names(server: S3Server) -> list[str]:
    """Names of the cell's objects, except the object that names the owner of the prefix."""
    folder = server.folder / "remuda" / "cell-1"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return sorted(names - {"owner"})


def archive(size: int) -> bytes:
    """An archive with a small file and one of `size` random bytes, which cannot be compressed."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("out/large", os.urandom(size))
        file.writestr("out/small.txt", "small")
    return packed.getvalue()


@pytest.fixture
def finished(cell: ServedCell) -> tuple[ScriptedRunner, dict[str, Any], bytes]:
    """A runner, its successful job, which has a log, and the archive of 20 MiB that the job uploaded."""
    cell.new_project("app", PIPELINE)
    runner, content = cell.new_runner(), archive(20 * MEBIBYTE)
    job = runner.take()
    assert runner.patch(job, 0, b"hello\nworld\n").status == 202
    assert runner.upload(job, content).status == 201
    assert runner.put(job, "success").status == 200
    return runner, job, content


def test_lfs_objects_go_through_the_bucket(cell: ServedCell, server: S3Server) -> None:
    cell.new_project("app")
    lfs, content = Lfs(cell, "root/app", basic(cell.token)), os.urandom(20 * MEBIBYTE)
    oid = hashlib.sha256(content).hexdigest()
    assert lfs.put(content[:-1] + b"x", oid).status == 422
    assert lfs.put(content + b"x", oid, len(content)).status == 422
    assert object_names(server) == []
    assert lfs.put(content).status == 200
    [name] = object_names(server)
    assert name.startswith(f"lfs/1/{oid[:2]}/{oid}-")
    assert lfs.get(oid).body == content
    part = lfs.get(oid, Range="bytes=10000000-")
    assert (part.status, part.body) == (206, content[10_000_000:])


def test_artifacts_go_through_the_bucket(
    cell: ServedCell, server: S3Server, finished: tuple[ScriptedRunner, dict[str, Any], bytes]
) -> None:
    runner, job, content = finished
    path = f"/projects/1/jobs/{job['id']}"
    assert runner.download(runner.take(), of=job["id"]).body == content
    before = server.requests("GetObject")
    assert cell.api("GET", f"{path}/artifacts/out/small.txt").body == b"small"
    # Each request is for 256 KiB at most: the cell does not read the whole archive for a small file.
    assert 1 <= server.requests("GetObject") - before <= 8
    assert cell.api("GET", f"{path}/artifacts/out/none").status == 404
    listed = cell.send("GET", f"/api/remuda/v1/jobs/{job['id']}/artifacts/files", PRIVATE_TOKEN=cell.token)
    assert [file["path"] for file in listed.json()] == ["out/large", "out/small.txt"]
    assert any(name.startswith(f"artifacts/0/{job['id']}/archive-") for name in object_names(server))
    assert not (cell.settings.data / "blobs" / "kept").exists()
    assert cell.api("DELETE", f"{path}/artifacts").status == 204
    assert not any(name.startswith("artifacts/") for name in object_names(server))


def test_a_refused_upload_leaves_nothing_in_the_bucket(tmp_path: Path, server: S3Server) -> None:
    with ServedCell(
        tmp_path / "cell",
        blobs="s3://remuda/cell-1",
        blobs_endpoint=server.endpoint,
        artifact_limit_bytes=20 * MEBIBYTE,
    ) as cell:
        cell.new_project("app", PIPELINE)
        runner = cell.new_runner()
        job = runner.take()
        assert runner.upload(job, b"x" * (20 * MEBIBYTE + 1)).status == 413
        assert runner.upload(job, b"x" * (20 * MEBIBYTE)).status == 201
        assert len([name for name in object_names(server) if name.startswith("artifacts/")]) == 1


def test_traces_are_archived_in_the_bucket(
    cell: ServedCell, server: S3Server, finished: tuple[ScriptedRunner, dict[str, Any], bytes]
) -> None:
    runner, job, _ = finished
    path = f"/projects/1/jobs/{job['id']}/trace"
    folder = cell.settings.data / "traces"
    wait_until(lambda: not list(folder.rglob("*.log")), "the trace is archived")
    assert f"traces/0/{job['id']}.log" in object_names(server)
    assert cell.api("GET", path).body == b"hello\nworld\n"
    part = cell.api("GET", path, Range="bytes=6-10")
    assert (part.status, part.body) == (206, b"world")
    assert cell.api("GET", path, Range="bytes=12-").status == 416
    assert runner.patch(job, 6, b"world\n").status == 202
    assert runner.patch(job, 6, b"other\n").status == 403
    assert cell.api("POST", f"/projects/1/jobs/{job['id']}/erase").status == 201
    assert object_names(server) == []


def test_jobs_run_and_uploads_get_503_while_the_server_is_down(
    cell: ServedCell, server: S3Server, finished: tuple[ScriptedRunner, dict[str, Any], bytes]
) -> None:
    runner, finished_job, _ = finished
    folder = cell.settings.data / "traces"
    wait_until(lambda: not list(folder.rglob("*.log")), "the trace is archived")
    job = runner.take()
    server.stop()
    assert runner.patch(job, 0, b"hello\n").status == 202
    refused = runner.upload(job, b"x" * 1000)
    assert refused.status == 503
    assert refused.headers["Retry-After"]
    assert "s3://remuda/cell-1 cannot be used now" in refused.json()["message"]
    assert cell.api("GET", f"/projects/1/jobs/{job['id']}/trace").body == b"hello\n"
    assert runner.put(job, "success").status == 200
    server.start()
    wait_until(lambda: not list(folder.rglob("*.log")), "the trace is archived")
    assert cell.api("GET", f"/projects/1/jobs/{job['id']}/trace").body == b"hello\n"
    assert cell.api("GET", f"/projects/1/jobs/{finished_job['id']}/artifacts/out/small.txt").body == b"small"


@pytest.mark.parametrize(
    ("address", "endpoint", "secret", "error"),
    [
        ("s3://nothere/cell", None, None, "NoSuchBucket.*create it"),
        ("s3://remuda/cell", None, "wrong", "SignatureDoesNotMatch.*credentials"),
        ("s3://remuda/cell", "http://127.0.0.1:9", None, "can be reached"),
    ],
)
async def test_error_message_for_an_unusable_bucket(
    server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    endpoint: str | None,
    secret: str | None,
    error: str,
) -> None:
    if secret:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with pytest.raises(CellError, match=f"the blobs cannot be kept in {address}: .*{error}"):
        await open_bucket(address, endpoint=endpoint or server.endpoint)


def test_two_cells_cannot_share_a_prefix(tmp_path: Path, server: S3Server, cell: ServedCell) -> None:
    def another_cell(prefix: str) -> ServedCell:
        return ServedCell(tmp_path / "other", blobs=f"s3://remuda/{prefix}", blobs_endpoint=server.endpoint)

    with pytest.raises(CellError, match="belong to another cell"), another_cell("cell-1"):
        pass
    with another_cell("cell-2"):
        pass


def test_a_cell_does_not_start_without_its_bucket(tmp_path: Path, server: S3Server) -> None:
    with (
        pytest.raises(CellError, match="NoSuchBucket"),
        ServedCell(tmp_path / "cell", blobs="s3://nothere", blobs_endpoint=server.endpoint),
    ):
        pass


LARGE = """
import asyncio, hashlib, re, sys
from pathlib import Path
from remuda.cell.blobs.object_storage import open_bucket

PIECES = 300
PIECE = bytes(range(256)) * 4096  # 1 MiB

async def data():
    for _ in range(PIECES):
        yield PIECE

def most_kibibytes():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

async def main():
    blobs = await open_bucket("s3://remuda/large", endpoint=sys.argv[1])
    Path("/proc/self/clear_refs").write_text("5")
    before = most_kibibytes()
    size, sha256 = await blobs.put("blob", data(), limit_bytes=10**9)
    digest = hashlib.sha256()
    async for piece in blobs.read("blob"):
        digest.update(piece)
    print(size, sha256 == digest.hexdigest(), sha256, (most_kibibytes() - before) // 1024)

asyncio.run(main())
"""


def test_300_mebibytes_are_uploaded_and_downloaded_with_less_than_100_of_memory(server: S3Server) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LARGE, server.endpoint], capture_output=True, text=True, check=True, timeout=100
    )
    size, is_same, sha256, grown_mebibytes = done.stdout.split()
    assert (int(size), is_same) == (300 * MEBIBYTE, "True")
    whole = hashlib.sha256()
    with (server.folder / "remuda" / "large" / "blob").open("rb") as file:
        while piece := file.read(MEBIBYTE):
            whole.update(piece)
    assert sha256 == whole.hexdigest()
    assert int(grown_mebibytes) < 100
