"""Start and stop of a cell: unusable folders and ports, tokens, health and metrics, and a quick stop."""

import os
import socket
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.cells.served_cell import ServedCell

from remuda.cell.errors import CellError, DataFolderError


def test_a_folder_in_use(cell: ServedCell, tmp_path: Path) -> None:
    with pytest.raises(DataFolderError, match=f"in use by another process .process {os.getpid()}") as refused:
        ServedCell(tmp_path / "cell").__enter__()
    assert "--data" in str(refused.value)
    assert cell.send("GET", "/-/health").status == 200


def test_a_folder_of_a_newer_version(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        cell.new_project("kept")
    version = tmp_path / "cell" / "version"
    assert version.read_text() == "1\n"
    version.write_text("2\n")
    with pytest.raises(DataFolderError, match=r"version 2.*up to 1.*newer Remuda"):
        ServedCell(tmp_path / "cell").__enter__()
    version.write_text("1\n")
    with ServedCell(tmp_path / "cell") as cell:
        assert [project["path"] for project in cell.api("GET", "/projects").json()] == ["kept"]


def test_a_folder_of_another_cell(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", cell_id=3) as cell:
        assert cell.new_project("far") > 1_000_000_000_000
        assert cell.send("GET", "/-/health").headers["X-Remuda-Cell"] == "3"
    with pytest.raises(DataFolderError, match=r"belongs to cell 3, not 1.*--cell-id 3"):
        ServedCell(tmp_path / "cell", cell_id=1).__enter__()


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cell").write_text("not a folder")
    with pytest.raises(DataFolderError, match="cannot be used"):
        ServedCell(tmp_path / "cell").__enter__()


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir(mode=0o755)
    (tmp_path / "bin" / "ls").write_text("a program")
    with pytest.raises(DataFolderError, match=r"not a cell's \(it has ls\).*--data"):
        ServedCell(tmp_path / "bin").__enter__()
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["ls"]
    assert stat.S_IMODE((tmp_path / "bin").stat().st_mode) == 0o755


def test_a_folder_in_which_a_start_died(tmp_path: Path) -> None:
    (tmp_path / "cell" / "lost+found").mkdir(parents=True)
    (tmp_path / "cell" / "lock").write_text("1\n")
    (tmp_path / "cell" / ".version.1.new").touch()
    with ServedCell(tmp_path / "cell") as cell:
        assert cell.send("GET", "/-/health").status == 200


def test_a_damaged_database(tmp_path: Path) -> None:
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "cell.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(CellError):
        ServedCell(tmp_path / "cell").__enter__()


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CellError, match=f"cannot listen on 127.0.0.1:{port}: another process.*--listen"):
            ServedCell(tmp_path / "cell", port=port).__enter__()
    with ServedCell(tmp_path / "cell", port=port) as cell:
        assert cell.url == f"http://127.0.0.1:{port}"


def test_an_address_of_another_host(tmp_path: Path) -> None:
    with pytest.raises(CellError, match="no such address"):
        ServedCell(tmp_path / "cell", host="192.0.2.1").__enter__()


def test_the_folder_is_private(cell: ServedCell, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "cell").stat().st_mode) == 0o700


def test_the_first_start_creates_a_token_and_stores_only_its_hash(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", admin_token=None) as cell:
        token = cell.service.admin_token_generated
        assert token
        assert token.startswith("glpat-")
        assert cell.api("GET", "/user").status == 200
    with sqlite3.connect(tmp_path / "cell" / "cell.sqlite") as database:
        assert token not in "\n".join(database.iterdump())
    database.close()
    with ServedCell(tmp_path / "cell", admin_token=None) as again:
        assert again.service.admin_token_generated is None
        assert again.api("GET", "/user", PRIVATE_TOKEN=token).status == 200
    with ServedCell(tmp_path / "cell", admin_token="chosen-by-the-operator") as third:
        assert third.api("GET", "/user").status == 200


def test_a_stop_does_not_wait_for_held_polls(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell, ThreadPoolExecutor(5) as pool:
        runner = cell.new_runner()
        runner.ask()
        polls = [pool.submit(runner.ask, hold=True) for _ in range(5)]
        cell.until_metric("remuda_cell_held_polls 5.0")
        cell.stop()
        assert [poll.result(30).status for poll in polls] == [204] * 5


def test_a_running_job_continues_after_a_restart(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        cell.new_project("app", "one:\n  script: [echo]\n")
        runner = cell.new_runner()
        job = runner.take()
        runner.patch(job, 0, b"before ")
    with ServedCell(tmp_path / "cell", port=cell.service.settings.port) as cell:
        runner.cell = cell
        answer = runner.patch(job, 7, b"after")
        assert (answer.status, answer.headers["Range"]) == (202, "0-12")
        assert runner.put(job, "success").status == 200
        assert cell.api("GET", f"/projects/1/jobs/{job['id']}/trace").body == b"before after"


def test_health_readiness_and_metrics(cell: ServedCell) -> None:
    cell.new_project("app", "one:\n  script: [echo]\n")
    runner = cell.new_runner()
    assert cell.send("GET", "/-/health").status == 200
    assert cell.send("GET", "/-/liveness").status == 200
    ready = cell.send("GET", "/-/readiness")
    assert ready.status == 200
    parts = ready.json()["parts"]
    assert parts == {part: {"status": "ok"} for part in ("store", "traces", "blobs", "git")}
    waiting = cell.send("GET", "/-/metrics").body.decode()
    assert 'remuda_cell_jobs{state="pending"} 1.0' in waiting
    assert "remuda_cell_queue_size 1.0" in waiting
    job = runner.take()
    text = cell.send("GET", "/-/metrics").body.decode()
    assert 'job_queue_duration_seconds_count{shared_runner="true"} 1.0' in text
    assert 'job_queue_duration_seconds_bucket{le="60.0",shared_runner="true"} 1.0' in text
    assert 'remuda_cell_http_requests_total{method="POST",route="/api/v4/jobs/request",status="201"} 1.0' in text
    assert "remuda_cell_queue_size 0.0" in text
    assert runner.put(job, "success").status == 200
    cell.new_project("broken", "one: [")
    for _ in range(2):
        metrics = cell.send("GET", "/-/metrics").body.decode().splitlines()
        assert 'remuda_cell_jobs_ended_total{state="success"} 1.0' in metrics
        assert 'remuda_cell_pipelines_ended_total{status="success"} 1.0' in metrics
        assert 'remuda_cell_pipelines_ended_total{status="failed"} 1.0' in metrics
        assert 'remuda_cell_jobs{state="running"} 0.0' in metrics
        assert not any(line.startswith('remuda_cell_jobs{state="success"}') for line in metrics), (
            "only unfinished jobs are counted"
        )
