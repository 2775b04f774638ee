"""A backup that is taken under load restores to a complete cell, with SQLite and with PostgreSQL."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from tests.support.cells.lfs_client import Lfs, basic
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.cell.blobs.folder import FolderBlobs
from remuda.cell.errors import CellError, DataFolderError
from remuda.cell.operations.backups import back_up, restore
from remuda.cell.operations.integrity_checks import Report, check, find_dangling_rows
from remuda.cell.settings import CellSettings
from remuda.cell.store import snapshots
from remuda.cell.traces.archive import ArchivedTraces
from remuda.cell.traces.files import FileTraces
from remuda.testing.builders import NOW
from remuda.testing.waiting import wait_until

PIPELINE = "build:\n  script: make\n  artifacts:\n    paths: [a]\ntest:\n  script: make test\n"
KINDS = ("sqlite", "postgres")


async def check_cell(settings: CellSettings) -> Report:
    async with snapshots.read(settings) as snapshot:
        blobs = FolderBlobs(settings.data / "blobs")
        return await check(snapshot, settings, ArchivedTraces(FileTraces(settings.data / "traces"), blobs), blobs)


def keep_busy(cell: ServedCell, runner: ScriptedRunner, project: int, stop: Event, ended: list[int]) -> None:
    """Push, and run jobs with logs and artifacts, until `stop` is set; collects the ids in `ended`."""
    number = 0
    while not stop.is_set():
        number += 1
        file = {"action": "create", "file_path": f"file{number}", "content": "x" * 2000}
        body = {"branch": f"topic{number}", "start_branch": "main", "commit_message": "more", "actions": [file]}
        assert cell.api("POST", f"/projects/{project}/repository/commits", body).status == 201
        while (answer := runner.ask()).status == 201:
            job: dict[str, Any] = answer.json()
            assert runner.patch(job, 0, b"log of the job\n" * 50).status == 202
            assert runner.upload(job, b"PK\x05\x06" + bytes(18), query="?artifact_format=zip").status == 201
            assert runner.put(job, "success").status == 200
            ended.append(job["id"])


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_a_backup_under_load_is_whole(tmp_path: Path, request: pytest.FixtureRequest, source: str, target: str) -> None:
    server = request.getfixturevalue("postgres_server") if "postgres" in (source, target) else None
    stop, ended = Event(), list[int]()
    backup = tmp_path / "backup.tar"
    settings = {} if source == "sqlite" else {"database": request.getfixturevalue("database")}
    with ServedCell(tmp_path / "cell", **settings) as cell:
        runner = cell.new_runner()
        project = cell.new_project("app", PIPELINE)
        work = Thread(target=keep_busy, args=(cell, runner, project, stop, ended))
        work.start()
        try:
            wait_until(lambda: len(ended) >= 10, "some jobs")
            before = list(ended)
            manifest = asyncio.run(back_up(cell.settings, backup, now=NOW, with_keys=True))
            reached = len(ended)
            wait_until(lambda: len(ended) >= reached + 2, "the cell goes on")
        finally:
            stop.set()
            work.join(60)
    assert manifest.cell_id == 1

    def restore_and_compare(database: str) -> None:
        new = CellSettings(data=tmp_path / "new", database=database)
        asyncio.run(restore(backup, new))
        report = asyncio.run(check_cell(new))
        assert report.problems == ()
        assert report.counts["projects"] == 1
        with ServedCell(new.data, database=database) as cell:
            jobs = {job["id"]: job for job in list_all(cell, f"/projects/{project}/jobs")}
            assert all(jobs[job_id]["status"] == "success" for job_id in before)
            trace = cell.api("GET", f"/projects/{project}/jobs/{before[-1]}/trace").body
            assert trace == b"log of the job\n" * 50
            new_runner = ScriptedRunner(cell, runner.token)
            while (answer := new_runner.ask()).status == 201:
                assert new_runner.put(answer.json(), "success").status == 200
                jobs.pop(answer.json()["id"], None)
            # New ids are higher than all that were assigned, also after the backup had read the rows.
            more = cell.api("POST", f"/projects/{project}/pipeline", {"ref": "main"}).json()
            assert more["iid"] > report.counts["pipelines"]
        for repo in (new.data / "repos").glob("*/*.git"):
            subprocess.run(["git", "-C", repo, "fsck", "--connectivity-only"], check=True, capture_output=True)

    if target == "sqlite":
        restore_and_compare("")
    else:
        assert server is not None
        with server.database() as url:
            restore_and_compare(url)


def list_all(cell: ServedCell, path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for page in range(1, 100):
        page_rows = cell.api("GET", f"{path}?per_page=100&page={page}").json()
        rows += page_rows
        if len(page_rows) < 100:
            break
    return rows


def test_check_reports_missing_data(tmp_path: Path) -> None:
    settings = CellSettings(data=tmp_path / "cell")
    with ServedCell(settings.data) as cell:
        runner = cell.new_runner()
        cell.new_project("app", "build:\n  script: make\n")
        job = runner.take()
        assert runner.patch(job, 0, b"log\n").status == 202
        assert runner.upload(job, b"PK\x05\x06" + bytes(18), query="?artifact_format=zip").status == 201
        assert runner.put(job, "success").status == 200
        assert Lfs(cell, "root/app", basic(cell.token)).put(b"large").status == 200
        assert asyncio.run(check_cell(settings)).problems == ()
    for log in (settings.data / "traces").rglob("*.log"):
        log.unlink()
    for blob in (settings.data / "blobs" / "kept").rglob("*"):
        if blob.is_file():
            blob.write_bytes(b"shor")
    next((settings.data / "repos").glob("*/*.git")).rename(tmp_path / "gone")
    with sqlite3.connect(settings.data / "cell.sqlite") as db:
        db.execute("DELETE FROM specs")
        db.execute("INSERT INTO hook_deliveries VALUES (1, 8, 'u', NULL, 1.0, '{}')")
        db.execute("INSERT INTO environments VALUES (1, 9, 'prod', 'available', 'prod', NULL, '{}')")
    db.close()
    problems = "\n".join(asyncio.run(check_cell(settings)).problems)
    for expected in (
        "refer to specs 1,",
        "hook_deliveries: 1 rows refer to hooks 8,",
        "environments: 1 rows refer to projects 9,",
        "its repository",
        "its archive (22 bytes",
        "LFS object d35c",
        "has 4 bytes",
        "its log has 0 bytes, not the 4",
    ):
        assert expected in problems


def test_check_finds_a_dangling_row_of_every_reference(tmp_path: Path) -> None:
    """The references come from the schema: each column `<name>_id` whose table exists."""
    settings = CellSettings(data=tmp_path / "cell")
    with ServedCell(settings.data):
        pass
    # The rows stay when the runner or the job is removed.
    without_row = {("jobs", "runner_id"), ("deployments", "job_id")}
    expected = set()
    with sqlite3.connect(settings.data / "cell.sqlite") as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [(row[1], row[2]) for row in db.execute(f"PRAGMA table_info({table})")]
            references = {
                name: target
                for name, _ in columns
                for target in (f"{name.removesuffix('_id')}s",)
                if name.endswith("_id") and target in tables and (table, name) not in without_row
            }
            if references:
                values = [77 if name in references else 78 if kind == "INTEGER" else b"{}" for name, kind in columns]
                db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
            expected |= {
                f"{table}: 1 rows refer to {target} 77, which does not exist" for target in references.values()
            }
    db.close()
    assert len(expected) > 15

    async def find() -> set[str]:
        async with snapshots.read(settings) as snapshot:
            return {problem async for problem in find_dangling_rows(snapshot)}

    problems = asyncio.run(find())
    assert expected <= problems, expected - problems


def test_invalid_sources_and_targets(tmp_path: Path) -> None:
    settings = CellSettings(data=tmp_path / "cell")
    with pytest.raises(DataFolderError, match="cannot read"):
        asyncio.run(back_up(settings, tmp_path / "backup", now=NOW))
    with pytest.raises(CellError, match="no backup of a cell"):
        asyncio.run(restore(tmp_path / "backup", settings))
    with ServedCell(settings.data):
        pass
    for target in (settings.data, settings.data / "backup.tar"):
        with pytest.raises(DataFolderError, match="in the data folder"):
            asyncio.run(back_up(settings, target, now=NOW))
    asyncio.run(back_up(settings, tmp_path / "good", now=NOW))
    with pytest.raises(DataFolderError, match="not empty"):
        asyncio.run(back_up(settings, tmp_path / "good", now=NOW))
    with pytest.raises(DataFolderError, match="not empty"):
        asyncio.run(restore(tmp_path / "good", settings))
    with pytest.raises(CellError, match=r"ends in \.tar"):
        asyncio.run(back_up(settings, tmp_path / "good.zip", now=NOW))


def test_backup_and_restore_commands(tmp_path: Path, database: str) -> None:
    def remuda(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "remuda", "cell", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    data = tmp_path / "cell"
    assert remuda("migrate", "--data", data, "--cell-id", "3").stdout.startswith("schema version 0")
    assert remuda("backup", tmp_path / "a.tar.gz", "--data", data).stdout.startswith("cell 3 is backed up")
    done = remuda("restore", tmp_path / "a.tar.gz", "--data", tmp_path / "new", "--database", database)
    assert f" --database {database} --cell-id 3" in done.stdout, done.stderr
    done = remuda("check", "--data", tmp_path / "new", "--database", database, "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cell_id"] == 3
    assert json.loads(done.stdout)["settings"] == {"data": "option", "database": "option"}
    done = remuda("restore", tmp_path / "a.tar.gz", "--data", tmp_path / "other", "--database", database)
    assert done.returncode == 2
    assert "holds a cell already" in done.stderr
    done = remuda("check", "--data", tmp_path / "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    done = remuda("backup", tmp_path / "b", "--data", tmp_path / "nothing", "--database", database)
    assert (done.returncode, done.stdout, (tmp_path / "b").exists()) == (2, "", False)
    assert "not a cell's" in done.stderr
    done = remuda("serve", "--data", tmp_path / "new", "--cell-id", "3", "--listen", "127.0.0.1:0")
    assert (done.returncode, (tmp_path / "new" / "cell.sqlite").exists()) == (2, False)
    assert "give that with --database" in done.stderr
