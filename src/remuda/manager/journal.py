"""The journal: every job the manager has taken and not yet given back, in one SQLite file.

It is what lets a new process find the running jobs and go on. A row is in the file, synced, before the call that made
it returns; so a caller may act on it in the next line. Calls that come while the disk is busy share one transaction.
Only the manager that holds the data folder's lock opens it. What the values mean is decided in `core/life.py`.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from remuda.lib.files import InUseError, is_disk_waited_for, sole_use
from remuda.lib.sqlite_writer import Writer
from remuda.manager.core.record import Outcome, Phase, Record
from remuda.manager.errors import DataFolderError

SCHEMA_VERSION = 1

_SCHEMA = """
create table jobs (
    key text primary key,
    job_id integer not null,
    url text not null,
    runner text not null,
    runner_name text not null,
    slot integer not null,
    sends_results integer not null,
    received_at real not null,
    api_version integer not null,
    payload blob not null,
    phase text not null,
    log_offset integer not null,
    log_crc integer,
    result_seq integer not null,
    cancel_told integer not null,
    outcome blob
) strict
"""
_COLUMNS = (
    "key, job_id, url, runner, runner_name, slot, sends_results, received_at, api_version, payload, "
    "phase, log_offset, log_crc, result_seq, cancel_told, outcome"
)


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was received; its `Record` changes, this does not."""

    key: str
    """The job's id for the agent."""
    job_id: int
    url: str
    runner: str
    """Short token of the runner that took it."""
    runner_name: str
    slot: int
    sends_results: bool
    received_at: float
    api_version: int
    payload: bytes


class Journal:
    """Open it with the data folder locked; close it before the lock goes."""

    def __init__(self, path: Path) -> None:
        try:
            self._connection = _open(path)
        except sqlite3.Error as error:
            raise DataFolderError(
                f"{path}: the journal cannot be opened: {error}. Is the disk full or the file damaged? "
                "Without it running jobs cannot be found again; move it away to start anew."
            ) from error
        self._writer = Writer(self._connection, path.name)
        self._path = path
        self._identity = _identity(path)
        self._is_lost = False

    def jobs(self) -> list[tuple[JobRow, Record]]:
        """Everything in the journal, oldest first."""
        try:
            rows = self._connection.execute(f"select {_COLUMNS} from jobs order by received_at, key").fetchall()
            return [_from_row(row) for row in rows]
        except (sqlite3.Error, ValueError, msgspec.MsgspecError) as error:
            raise DataFolderError(
                f"the journal cannot be read: {error}. Move journal.sqlite out of the data folder to start anew; "
                "jobs that are only in there are lost."
            ) from error

    def is_there(self) -> bool:
        """Whether the file that is written is still the one that a new process would find."""
        return _identity(self._path) == self._identity

    def give_up(self) -> None:
        """Nobody will find the file again: from now on nothing is written."""
        self._is_lost = True

    async def add(self, row: JobRow) -> None:
        """A job came in."""
        values = (*msgspec.structs.astuple(row), *_record_values(Record()))
        marks = ", ".join("?" * len(values))
        await self._writer.run(
            lambda db: db.execute(f"insert or replace into jobs ({_COLUMNS}) values ({marks})", values)
        )

    async def save(self, key: str, record: Record) -> None:
        """A job went on."""
        if self._is_lost:
            return
        statement = (
            "update jobs set phase = ?, log_offset = ?, log_crc = ?, result_seq = ?, cancel_told = ?, outcome = ? "
            "where key = ?"
        )
        values = (*_record_values(record), key)
        await self._writer.run(lambda db: db.execute(statement, values))

    async def remove(self, key: str) -> None:
        """A job is over."""
        if self._is_lost:
            return
        await self._writer.run(lambda db: db.execute("delete from jobs where key = ?", (key,)))

    def close(self) -> None:
        """Wait for what is being written, then close."""
        self._writer.close()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The manager's folder, for this process alone as long as this lasts."""
    with ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(sole_use(folder / "manager.lock"))
        except InUseError as error:
            raise DataFolderError(
                f"{folder}: the data folder is in use by another manager (process {error.holder}). "
                "Stop that one, or give --data another folder."
            ) from None
        except OSError as error:
            raise DataFolderError(f"{folder}: the data folder cannot be used: {error.strerror}") from None
        yield


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        path.chmod(0o600)
        connection.execute("pragma journal_mode = wal")
        connection.execute(f"pragma synchronous = {'full' if is_disk_waited_for() else 'off'}")
        (version,) = connection.execute("pragma user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise DataFolderError(
                f"{path}: the journal has version {version}, this Remuda knows up to {SCHEMA_VERSION}. "
                "Use the newer Remuda that wrote it, or another data folder."
            )
        if version == 0:
            with connection:
                connection.execute("begin immediate")
                connection.execute("drop table if exists jobs")
                connection.execute(_SCHEMA)
                connection.execute(f"pragma user_version = {SCHEMA_VERSION}")
    except BaseException:
        connection.close()
        raise
    return connection


def _record_values(record: Record) -> tuple[Any, ...]:
    outcome = msgspec.json.encode(record.outcome) if record.outcome else None
    return (
        str(record.phase),
        record.log_offset,
        record.log_crc,
        record.result_seq,
        int(record.cancel_told),
        outcome,
    )


def _from_row(row: Sequence[Any]) -> tuple[JobRow, Record]:
    key, job_id, url, runner, name, slot, sends_results, received_at, api_version, payload, *rest = row
    phase, log_offset, log_crc, result_seq, cancel_told, outcome = rest
    return (
        JobRow(
            key=key,
            job_id=job_id,
            url=url,
            runner=runner,
            runner_name=name,
            slot=slot,
            sends_results=bool(sends_results),
            received_at=received_at,
            api_version=api_version,
            payload=payload,
        ),
        Record(
            phase=Phase(phase),
            log_offset=log_offset,
            log_crc=log_crc,
            result_seq=result_seq,
            cancel_told=bool(cancel_told),
            outcome=msgspec.json.decode(outcome, type=Outcome) if outcome else None,
        ),
    )
