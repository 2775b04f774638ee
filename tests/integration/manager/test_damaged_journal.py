"""A manager moves a damaged journal aside, and finds its jobs again through their agents."""

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.manager.test_lost_folder import check, script, wait_for_exit
from tests.support.runners.manager_harness import ManagerHarness

from remuda.manager.errors import DataFolderError
from remuda.manager.jobs.journal import Journal
from remuda.manager.process.control import ask_status
from remuda.testing.waiting import until

pytestmark = pytest.mark.long


def _write_garbage(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _damage_the_middle(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _put_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").touch()


def _drop_a_table(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("drop table payloads")
    db.close()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "garbage": _write_garbage,
    "truncated": _truncate,
    "the middle": _damage_the_middle,
    "a folder": _put_a_folder,
    "a table": _drop_a_table,
}


def _checkpoint(path: Path) -> None:
    """Write all data into the file itself by a checkpoint."""
    db = sqlite3.connect(path)
    db.execute("pragma wal_checkpoint(truncate)")
    db.close()


@pytest.mark.parametrize("damage", [*DAMAGES.values(), _empty], ids=[*DAMAGES, "emptied"])
async def test_jobs_are_found_again(harness: ManagerHarness, damage: Callable[[Path], None]) -> None:
    process = await harness.spawn()
    job = await harness.coordinator.enqueue(*script(harness))
    await harness.coordinator.until(lambda: b"line 200\n" in job.output)
    process.kill()
    await process.wait()
    path = harness.data / "journal.sqlite"
    _checkpoint(path)
    damage(path)
    process = await harness.spawn()
    await until(lambda: b"recovered a job" in (harness.folder / "manager.out").read_bytes())
    log = (harness.folder / "manager.out").read_text()
    moved = [str(file) for file in harness.data.glob("journal.sqlite.damaged-*")]
    if damage is _empty:
        assert moved == []
    else:
        assert len(moved) == 1
        assert "journal damaged; moved it aside" in log
        assert Path(moved[0]).stat().st_mode & 0o077 == 0 or damage is _put_a_folder
        assert moved[0] in log
        assert (await ask_status(harness.data)).damaged_journals == tuple(moved)
    (harness.folder / "go").touch()
    await harness.coordinator.until_over(job)
    process.send_signal(signal.SIGQUIT)
    assert await wait_for_exit(process) == 0
    check(harness, job)
    assert harness.rows() == 0


def test_a_journal_of_a_newer_version_is_not_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    Journal(path).close()
    with sqlite3.connect(path) as db:
        db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(DataFolderError, match="newer Remuda"):
        Journal(path)
    assert [file.name for file in tmp_path.iterdir()] == ["journal.sqlite"]
