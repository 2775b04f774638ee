"""Faults during backup and restore: concurrent removals, full disks, newer schemas, damaged or unfinished copies."""

import asyncio
import hashlib
import json
import resource
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.support.cells.lfs_client import Lfs, basic
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.cell.blobs.folder import FolderBlobs
from remuda.cell.errors import CellError, DataFolderError
from remuda.cell.operations import backups
from remuda.cell.operations.backups import back_up, restore
from remuda.cell.operations.integrity_checks import check
from remuda.cell.settings import CellSettings
from remuda.cell.store import snapshots
from remuda.cell.traces.archive import ArchivedTraces
from remuda.cell.traces.files import FileTraces
from remuda.testing.builders import NOW
from remuda.testing.waiting import wait_until

PIPELINE = "".join(f"job{number}:\n  script: make\n" for number in range(4))
ARCHIVE = b"PK\x05\x06" + bytes(18)


def remuda(*arguments: str | Path, limit: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "remuda", "cell", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=limit, check=False)


async def find_problems(settings: CellSettings) -> tuple[str, ...]:
    async with snapshots.read(settings) as snapshot:
        blobs = FolderBlobs(settings.data / "blobs")
        traces = ArchivedTraces(FileTraces(settings.data / "traces"), blobs)
        return (await check(snapshot, settings, traces, blobs)).problems


def remove_lfs_object(data: Path, content: bytes) -> None:
    """Remove the row and the file of an LFS object, as a cell does when its project was deleted."""
    oid = hashlib.sha256(content).hexdigest()
    with closing(sqlite3.connect(data / "cell.sqlite")) as db, db:
        db.execute("DELETE FROM lfs_objects WHERE oid = ?", (oid,))
    next((data / "blobs" / "kept" / "lfs").glob(f"*/*/{oid}-*")).unlink()


def run_job(runner: ScriptedRunner) -> int:
    """Run a job that writes a log and uploads an archive; return its id."""
    job = runner.take()
    assert runner.patch(job, 0, b"hello\n").status == 202
    assert runner.upload(job, ARCHIVE, query="?artifact_format=zip").status == 201
    assert runner.put(job, "success").status == 200
    return int(job["id"])


def test_jobs_and_files_that_are_removed_during_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_files = backups._copy_files
    with ServedCell(tmp_path / "cell") as cell:
        project = cell.new_project("app", PIPELINE)
        runner = cell.new_runner()
        unchanged, stripped, erased, removed = (run_job(runner) for _ in range(4))
        lfs = Lfs(cell, "root/app", basic(cell.token))
        assert [lfs.put(content).status for content in (b"kept", b"removed")] == [200, 200]
        lost_file = next((cell.settings.data / "blobs" / "kept").glob(f"artifacts/*/{removed}/*"))

        def copy(settings: CellSettings, to: Path) -> None:
            """Runs after the rows were copied."""
            assert cell.api("DELETE", f"/projects/{project}/jobs/{stripped}/artifacts").status == 204
            assert cell.api("POST", f"/projects/{project}/jobs/{erased}/erase").status == 201
            lost_file.unlink()
            remove_lfs_object(cell.settings.data, b"removed")
            copy_files(settings, to)

        monkeypatch.setattr(backups, "_copy_files", copy)
        asyncio.run(back_up(cell.settings, tmp_path / "backup", now=NOW, with_keys=True))
    new = CellSettings(data=tmp_path / "new")
    asyncio.run(restore(tmp_path / "backup", new))
    # A file that a row still refers to is reported as missing.
    [problem] = asyncio.run(find_problems(new))
    assert problem.startswith(f"job {removed}: its archive")
    with ServedCell(new.data) as cell:
        jobs = {job["id"]: job for job in cell.api("GET", f"/projects/{project}/jobs").json()}
        assert ["artifacts_file" in jobs[job_id] for job_id in (unchanged, stripped, erased)] == [True, False, False]
        assert cell.api("GET", f"/projects/{project}/jobs/{unchanged}/trace").body == b"hello\n"
        assert cell.api("GET", f"/projects/{project}/jobs/{erased}/trace").body == b""
        lfs = Lfs(cell, "root/app", basic(cell.token))
        assert lfs.get(hashlib.sha256(b"kept").hexdigest()).body == b"kept"
        assert lfs.get(hashlib.sha256(b"removed").hexdigest()).status == 404


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.long
def test_jobs_that_ran_when_the_backup_was_taken(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    """An active runner goes on, a job that was only leased is pending again, a silent runner's job fails."""
    database = {} if kind == "sqlite" else {"database": request.getfixturevalue("database")}
    with ServedCell(tmp_path / "cell", lease_seconds=8, **database) as cell:
        project = cell.new_project("app", PIPELINE)
        runner = cell.new_runner()
        active, silent, leased = (runner.take() for _ in range(3))
        for job in (active, silent):
            assert runner.patch(job, 0, b"hello\n").status == 202
        asyncio.run(back_up(cell.settings, tmp_path / "backup.tgz", now=NOW, with_keys=True))
        assert runner.patch(active, 6, b"world\n").status == 202
    new: dict[str, Any] = {"lease_seconds": 1, "silent_seconds": 12}
    with ExitStack() as stack:
        if kind == "postgres":
            new["database"] = stack.enter_context(request.getfixturevalue("postgres_server").database())
        settings = CellSettings(data=tmp_path / "new", database=new.get("database", ""))
        asyncio.run(restore(tmp_path / "backup.tgz", settings))
        cell = stack.enter_context(ServedCell(settings.data, **new))
        runner = ScriptedRunner(cell, runner.token)

        def status(job: dict[str, Any]) -> str:
            return str(cell.api("GET", f"/projects/{project}/jobs/{job['id']}").json()["status"])

        answer = runner.patch(active, 12, b"more\n")
        assert (answer.status, answer.headers["range"]) == (416, "0-6")
        assert runner.patch(active, 6, b"world\nmore\n").status == 202
        assert runner.put(active, "success").status == 200
        assert cell.api("GET", f"/projects/{project}/jobs/{active['id']}/trace").body == b"hello\nworld\nmore\n"
        wait_until(lambda: status(leased) == "pending", "the lease ends")
        assert runner.put(leased, "success").status == 403
        again = {job["id"] for job in (runner.take(), runner.take())}
        assert leased["id"] in again
        wait_until(lambda: status(silent) == "failed", "the silent job fails")
        assert cell.api("GET", f"/projects/{project}/jobs/{silent['id']}/trace").body == b"hello\n"


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    data = tmp_path / "cell"
    with ServedCell(data) as cell:
        cell.new_project("app", PIPELINE)
    (tmp_path / "empty").mkdir()
    for place in ("new", "empty", "backup.tar"):
        done = remuda("backup", tmp_path / place, "--data", data, limit=limit)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert "full" in done.stderr or "space" in done.stderr
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cell", "empty"]
    assert list((tmp_path / "empty").iterdir()) == []
    assert remuda("backup", tmp_path / "backup", "--data", data).returncode == 0
    done = remuda("restore", tmp_path / "backup", "--data", tmp_path / "new", limit=limit)
    assert done.returncode == 1
    assert not (tmp_path / "new").exists()


BACKUP_THAT_HANGS = """
import asyncio, sys
from pathlib import Path
from remuda.cell.operations import backups
from remuda.cell.settings import CellSettings

def hang(*_):
    print("packs", flush=True)
    sys.stdin.read()

backups.pack = hang
asyncio.run(backups.back_up(CellSettings(data=Path(sys.argv[1])), Path(sys.argv[2]), now=1.0))
"""


def test_the_next_backup_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    data, folder = tmp_path / "cell", tmp_path / "backups"
    with ServedCell(data) as cell:
        cell.new_project("app", PIPELINE)
    command = [sys.executable, "-c", BACKUP_THAT_HANGS, str(data), str(folder / "first.tar")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"packs\n"
        [unfinished] = folder.iterdir()
        assert remuda("backup", folder / "second.tar", "--data", data).returncode == 0
        assert unfinished.exists(), "it belongs to a backup that runs"
        process.kill()
    assert remuda("backup", folder / "third.tar", "--data", data).returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == ["second.tar", "third.tar"]


def test_a_restore_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        project = cell.new_project("app", PIPELINE)
        asyncio.run(back_up(cell.settings, tmp_path / "backup", now=NOW, with_keys=True))
    new = CellSettings(data=tmp_path / "new")
    (new.data / "repos" / "ab").mkdir(parents=True)
    (new.data / "unfinished").write_text("1\n")
    (new.data / "cell.toml").write_text("lease_seconds = 9\n")
    with (
        pytest.raises(DataFolderError, match=r"was not finished; run `remuda cell restore` again"),
        ServedCell(new.data),
    ):
        pass
    asyncio.run(restore(tmp_path / "backup", new))
    assert asyncio.run(find_problems(new)) == ()
    assert not (new.data / "repos" / "ab").exists()
    assert (new.data / "cell.toml").exists()
    with ServedCell(new.data) as cell:
        assert cell.api("GET", f"/projects/{project}").status == 200


def test_a_damaged_backup_is_refused(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        asyncio.run(back_up(cell.settings, tmp_path / "good.tgz", now=NOW))
        asyncio.run(back_up(cell.settings, tmp_path / "good", now=NOW))
    (tmp_path / "short.tgz").write_bytes((tmp_path / "good.tgz").read_bytes()[:5000])
    (tmp_path / "no.tar").write_bytes(b"nothing of the kind")
    (tmp_path / "good" / "cell.sqlite").write_bytes(b"x" * 5000)
    for name in ("short.tgz", "no.tar", "gone.tar", "gone", "good"):
        done = remuda("restore", tmp_path / name, "--data", tmp_path / "new")
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "kind"), [("../outside", tarfile.REGTYPE), ("/outside", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)]
)
def test_an_archive_that_reaches_outside_is_refused(tmp_path: Path, name: str, kind: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "../outside"
    with tarfile.open(tmp_path / "hostile.tar", "w") as archive:
        archive.addfile(member)
    done = remuda("restore", tmp_path / "hostile.tar", "--data", tmp_path / "new")
    assert done.returncode == 2
    assert "does not belong in a backup" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.tar"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_newer_schema_is_refused_by_all_commands(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    options: list[str | Path] = ["--data", tmp_path / "cell"]
    if kind == "postgres":
        options += ["--database", request.getfixturevalue("database")]
    assert remuda("migrate", *options).returncode == 0
    (tmp_path / "cell").mkdir(exist_ok=True)
    (tmp_path / "cell" / "version").write_text("1\n")
    assert remuda("backup", tmp_path / "good", *options).returncode == 0
    newer = "UPDATE alembic_version SET version_num = '9999'"
    if kind == "sqlite":
        with sqlite3.connect(tmp_path / "cell" / "cell.sqlite") as db:
            db.execute(newer)
        db.close()
    else:
        asyncio.run(_execute(str(options[-1]), newer))
    before = sorted(tmp_path.rglob("*"))
    for command in (["migrate"], ["check"], ["backup", tmp_path / "bad"], ["serve", "--listen", "127.0.0.1:0"]):
        done = remuda(*command, *options)
        assert done.returncode == 2, command
        assert "has schema version 9999, made by a newer release; this one reads up to" in done.stderr
        assert done.stdout == ""
    assert kind == "postgres" or sorted(tmp_path.rglob("*")) == before
    assert not (tmp_path / "bad").exists()
    manifest = tmp_path / "good" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"revision": "9999"}))
    with pytest.raises(CellError, match=r"made by a newer release \(format 1, schema version 9999\)"):
        asyncio.run(restore(tmp_path / "good", CellSettings(data=tmp_path / "new")))
    assert not (tmp_path / "new").exists()


async def _execute(url: str, sql: str) -> None:
    db = await asyncpg.connect(url)
    await db.execute(sql)
    await db.close()
