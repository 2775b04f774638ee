"""A manager whose journal is damaged moves it aside by itself, and finds its jobs again through their agents."""

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.manager.test_lost_folder import check, ended, script
from tests.support.runners.manager_bench import ManagerBench

from remuda.manager.errors import DataFolderError
from remuda.manager.jobs.journal import Journal
from remuda.manager.process.control import ask_status
from remuda.testing.coordinator import Coordinator
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


def _settle(path: Path) -> None:
    """Have everything in the file itself, as after a checkpoint."""
    db = sqlite3.connect(path)
    db.execute("pragma wal_checkpoint(truncate)")
    db.close()


@pytest.mark.parametrize("damage", [*DAMAGES.values(), _empty], ids=[*DAMAGES, "emptied"])
async def test_jobs_are_found_again(
    bench: ManagerBench, coordinator: Coordinator, damage: Callable[[Path], None]
) -> None:
    process = await bench.spawn()
    job = await coordinator.enqueue(*script(bench))
    await coordinator.until(lambda: b"line 200\n" in job.output)
    process.kill()
    await process.wait()
    path = bench.data / "journal.sqlite"
    _settle(path)
    damage(path)
    process = await bench.spawn()
    await until(lambda: b"recovered a job" in (bench.folder / "manager.out").read_bytes())
    told = (bench.folder / "manager.out").read_text()
    kept = [str(one) for one in bench.data.glob("journal.sqlite.damaged-*")]
    if damage is _empty:
        assert kept == []
    else:
        assert len(kept) == 1
        assert "journal damaged; moved it aside" in told
        assert Path(kept[0]).stat().st_mode & 0o077 == 0 or damage is _put_a_folder
        assert kept[0] in told
        assert (await ask_status(bench.data)).damaged_journals == tuple(kept)
    (bench.folder / "go").touch()
    await coordinator.until_over(job)
    process.send_signal(signal.SIGQUIT)
    assert await ended(process) == 0
    check(bench, job)
    assert bench.rows() == 0


def test_what_only_cannot_be_opened_is_not_taken_for_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    Journal(path).close()
    with sqlite3.connect(path) as db:
        db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(DataFolderError, match="newer Remuda"):
        Journal(path)
    assert [one.name for one in tmp_path.iterdir()] == ["journal.sqlite"]
