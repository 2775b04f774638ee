"""The journal: rows survive a restart, older schema versions are migrated, and newer or damaged files are refused."""

import asyncio
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manager_values import a_row

from remuda.manager.core.record import Outcome, Phase, Record
from remuda.manager.errors import DataFolderError, JournalDamagedError
from remuda.manager.jobs.journal import (
    _SCHEMA,
    _SINCE_2,
    Journal,
    _from_row,
    _record_values,
    lock_folder,
    settings_name,
)


async def test_another_process_reads_all_rows(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    await journal.add(a_row(), Record())
    await journal.add(a_row("2-def", received_at=13.0, sends_results=False), Record())
    outcome = Outcome(state="failed", reason="script_failure", exit_code=2, log_bytes=10, note="why\n")
    record = Record(phase=Phase.ENDED, log_offset=7, log_crc=None, result_seq=4, cancel_told=True, outcome=outcome)
    await journal.save("2-def", record)
    journal.close()
    reopened = Journal(tmp_path / "journal.sqlite")
    assert reopened.jobs() == [(a_row(), Record()), (a_row("2-def", received_at=13.0, sends_results=False), record)]
    await reopened.remove("1-abc")
    assert [row.key for row, _ in reopened.jobs()] == ["2-def"]
    reopened.close()


async def test_concurrent_writes_are_all_stored(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    await asyncio.gather(*(journal.add(a_row(f"{n}-x", received_at=n), Record()) for n in range(200)))
    await asyncio.gather(*(journal.save(f"{n}-x", Record(log_offset=n)) for n in range(200)))
    assert [record.log_offset for _, record in journal.jobs()] == list(range(200))
    journal.close()


async def test_a_failed_write_raises_at_its_caller_and_does_not_affect_others(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    bad = a_row("bad", received_at="not a number")
    outcomes = await asyncio.gather(
        journal.add(a_row("1-a"), Record()),
        journal.add(bad, Record()),
        journal.add(a_row("2-b"), Record()),
        return_exceptions=True,
    )
    failed = [outcome for outcome in outcomes if isinstance(outcome, sqlite3.Error)]
    assert failed
    rows = {row.key for row, _ in journal.jobs()}
    assert rows == {key for key, outcome in zip(("1-a", "bad", "2-b"), outcomes, strict=True) if outcome is None}
    journal.close()


async def test_a_journal_of_a_newer_version_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    Journal(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 99")
    connection.close()
    with pytest.raises(DataFolderError, match="version 99"):
        Journal(path)
    connection = sqlite3.connect(path)
    assert connection.execute("pragma user_version").fetchone() == (99,)
    connection.close()


async def test_a_journal_of_the_first_version_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(_SCHEMA)
        values = ("1-abc", 1, "http://cell", "abcdefghi", "one", 3, 1, 12.5, 1, b"{}", "started", 7, None, 2, 0, None)
        connection.execute(f"insert into jobs values ({', '.join('?' * len(values))})", values)
        connection.execute("pragma user_version = 1")
    connection.close()
    for _ in range(2):
        journal = Journal(path)
        record = Record(phase=Phase.STARTED, log_offset=7, log_crc=None, result_seq=2, machine="local")
        assert journal.jobs() == [(a_row(), record)]
        journal.close()


async def test_a_payload_is_written_once_and_removed_with_its_job(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    large = b"x" * 100_000
    for key in ("1-a", "2-b"):
        await journal.add(a_row(key, payload=large), Record())
    await journal.add(a_row("1-a", payload=b"another"), Record())
    before = path.with_name("journal.sqlite-wal").stat().st_size
    for offset in range(5):
        await journal.save("2-b", Record(log_offset=offset))
    assert path.with_name("journal.sqlite-wal").stat().st_size - before < len(large)
    assert {row.key: row.payload for row, _ in journal.jobs()} == {"1-a": b"another", "2-b": large}
    await journal.remove("2-b")
    journal.close()
    connection = sqlite3.connect(path)
    assert connection.execute("select payload from payloads").fetchall() == [(b"another",)]
    connection.close()


async def test_a_journal_of_the_second_version_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with sqlite3.connect(path) as connection:
        for statement in (_SCHEMA, *_SINCE_2):
            connection.execute(statement)
        values = ("1-abc", 1, "http://cell", "abcdefghi", "one", 3, 1, 12.5, 1, b"{}", "started", 7, 5, 2, 0, None)
        connection.execute(f"insert into jobs values ({', '.join('?' * len(values))}, 'abc', 'there')", values)
        connection.execute("pragma user_version = 2")
    connection.close()
    for _ in range(2):
        journal = Journal(path)
        record = Record(phase=Phase.STARTED, log_offset=7, log_crc=5, result_seq=2, machine="there")
        assert journal.jobs() == [(a_row(settings="abc"), record)]
        journal.close()


async def test_a_journal_of_the_third_version_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    await journal.add(a_row(), Record())
    journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute("alter table jobs drop column manager")
        connection.execute("pragma user_version = 3")
    connection.close()
    journal = Journal(path)
    assert journal.jobs() == [(a_row(), Record())]
    await journal.add(a_row(manager="1a2b"), Record())
    assert journal.jobs() == [(a_row(manager="1a2b"), Record())]
    journal.close()


async def test_configurations_stay_as_long_as_jobs_need_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    await journal.add(a_row("1-a", settings=settings_name(b"one")), Record(), b"one")
    await journal.add(a_row("2-b", settings=settings_name(b"two")), Record(), b"two")
    await journal.add(a_row("3-c", settings=settings_name(b"two")), Record(), b"two")
    await journal.remove("1-a")
    journal.close()
    reopened = Journal(tmp_path / "journal.sqlite")
    assert reopened.settings() == {settings_name(b"two"): b"two"}
    reopened.close()


@pytest.mark.parametrize("is_folder_removed", [True, False], ids=["folder", "file"])
async def test_a_removed_journal_is_written_again_with_all_rows(tmp_path: Path, is_folder_removed: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    journal = Journal(folder / "journal.sqlite")
    await journal.add(a_row("1-a", settings=settings_name(b"one")), Record(), b"one")
    await journal.add(a_row("2-b"), Record())
    if is_folder_removed:
        shutil.rmtree(folder)
    else:
        (folder / "journal.sqlite").unlink()
    assert not journal.is_there()
    if is_folder_removed:
        with pytest.raises(sqlite3.Error):
            await journal.renew()
        folder.mkdir()
    async with asyncio.TaskGroup() as group:
        pending_save = group.create_task(journal.save("2-b", Record(log_offset=5)))
        await journal.renew()
    assert pending_save.done()
    assert journal.is_there()
    await journal.remove("1-a")
    await journal.add(a_row("3-c"), Record())
    journal.close()
    reopened = Journal(folder / "journal.sqlite")
    assert {row.key: record.log_offset for row, record in reopened.jobs()} == {"2-b": 5, "3-c": 0}
    reopened.close()


async def test_a_damaged_journal_has_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"this is no database, not at all, by no means" * 100)
    with pytest.raises(JournalDamagedError, match="is damaged: "):
        Journal(tmp_path / "journal.sqlite")


async def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.sqlite").close()
    assert (tmp_path / "journal.sqlite").stat().st_mode & 0o777 == 0o600


def test_a_data_folder_is_used_by_one_manager_at_a_time(tmp_path: Path) -> None:
    with (
        lock_folder(tmp_path / "data"),
        pytest.raises(DataFolderError, match=f"in use by another manager .process {os.getpid()}"),
        lock_folder(tmp_path / "data"),
    ):
        pass
    with lock_folder(tmp_path / "data"):
        pass


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderError, match="cannot be used"), lock_folder(tmp_path / "file" / "data"):
        pass


@given(
    st.builds(
        Record,
        phase=st.sampled_from(Phase),
        log_offset=st.integers(0, 2**40),
        log_crc=st.none() | st.integers(0, 2**32 - 1),
        result_seq=st.integers(1, 2**30),
        cancel_told=st.booleans(),
        outcome=st.none()
        | st.builds(Outcome, state=st.sampled_from(["success", "failed"]), note=st.text(), message=st.text()),
    )
)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    row = a_row()
    stored = (row.key, 1, row.url, row.runner, row.runner_name, 3, 1, 12.5, 1, b"{}", "", "", *_record_values(record))
    assert _from_row(stored) == (row, record)


async def test_an_unreadable_row_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    for key in ("1-a", "2-b", "3-c"):
        await journal.add(a_row(key), Record())
    journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute("update jobs set phase = 'of a later Remuda' where key = '1-a'")
        connection.execute("update jobs set outcome = x'7b' where key = '2-b'")
    connection.close()
    reopened = Journal(path)
    assert [row.key for row, _ in reopened.jobs()] == ["3-c"]
    reopened.close()
