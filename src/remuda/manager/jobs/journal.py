"""The journal: all current jobs of the manager, in one SQLite file, from which a new process resumes them.

A write is synced to disk before the call returns. Calls that come while the disk is busy share one transaction. Only
the manager with the data folder's lock opens the journal. If someone deletes the file, the process still has it open:
`renew` writes its content to a new file."""

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from remuda.lib.files import InUseError, file_identity, hold_lock, is_sync_enabled, make_private, sync_folder
from remuda.lib.sqlite_writer import Writer
from remuda.manager.core.record import JobRow, Outcome, Phase, Record
from remuda.manager.errors import DataFolderError, FolderTakenError, JournalDamagedError
from remuda.telemetry.logs import logger

LOCK_NAME = "manager.lock"
SCHEMA_VERSION = 4

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
_SINCE_2 = (
    "alter table jobs add column settings text not null default ''",
    "alter table jobs add column machine text not null default ''",
    "create table runners (digest text primary key, settings blob not null) strict",
)
"""Applied to new files, too, so that there is one way to the newest schema."""
_SINCE_3 = (
    "create table payloads (job integer primary key, payload blob not null) strict",
    "insert into payloads select rowid, payload from jobs",
    "update jobs set payload = x''",
)
"""SQLite writes the whole row at each change, so the large payload has its own table."""
_SINCE_4 = ("alter table jobs add column manager text not null default ''",)
_FIELDS = (*JobRow.__struct_fields__, *Record.__struct_fields__)
"""Fields are columns: a new or renamed field needs a newer schema."""
_COLUMNS = ", ".join(_FIELDS)
_PAYLOAD = _FIELDS.index("payload")
_ALL = (
    f"select {_COLUMNS.replace('payload', 'payloads.payload')} from jobs join payloads on payloads.job = jobs.rowid"
    " order by received_at, key"
)
_OLD_PAYLOAD = "delete from payloads where job = (select rowid from jobs where key = ?)"


class Journal:
    """The journal file of one manager. The data folder must be locked (`lock_folder`) while it is open."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises JournalDamagedError if it is damaged (the caller then renames it with
        `set_aside`), DataFolderError if it cannot be opened for another reason."""
        try:
            self._connection = _open(path)
        except sqlite3.Error as error:
            if is_damage(error) or path.is_dir():
                raise JournalDamagedError(f"{path}: the journal is damaged: {error}") from error
            raise DataFolderError(
                f"{path}: the journal cannot be opened: {error}. Free space on its disk, and let the manager's user "
                "read and write it and its folder."
            ) from error
        self._writer = Writer(self._connection, path.name)
        self._path = path
        self._identity = file_identity(path)
        self._renewal: asyncio.Event | None = None
        self._saved_tables: tuple[list[Any], list[Any]] = ([], [])
        self._stored_settings: set[str] = set()

    def jobs(self) -> list[tuple[JobRow, Record]]:
        """Return all jobs, oldest first, without undecodable rows. Raises DataFolderError if the file is unreadable."""
        try:
            rows = self._connection.execute(_ALL).fetchall()
        except sqlite3.Error as error:
            raise DataFolderError(
                f"the journal cannot be read: {error}. Check its disk, and start the manager again: it moves a damaged "
                "journal aside."
            ) from error
        jobs = []
        for row in rows:
            try:
                jobs.append(_from_row(row))
            except (ValueError, msgspec.MsgspecError) as error:
                logger("manager").error(
                    "cannot read a job in the journal; it continues only if it is found at its agent",
                    key=row[0],
                    cause=str(error),
                )
        return jobs

    def settings(self) -> dict[str, bytes]:
        """Return runner configurations (JSON) by digest (`JobRow.settings`). Raises DataFolderError if unreadable."""
        try:
            return dict(self._connection.execute("select digest, settings from runners").fetchall())
        except sqlite3.Error as error:
            raise DataFolderError(f"the journal cannot be read: {error}. Check its disk.") from error

    def is_there(self) -> bool:
        """True if the open file still exists at its path: it was not deleted or replaced, and no `renew` is pending."""
        return self._renewal is None and file_identity(self._path) == self._identity

    async def renew(self) -> None:
        """Create the deleted file again, with the same content. Raises OSError, sqlite3.Error or DataFolderError on
        failure. Other writes wait meanwhile; if the new file cannot be created, until a later call succeeds."""
        if self._renewal is None:
            self._renewal = waiting = asyncio.Event()
            try:
                # Runs on the writer thread, so queued writes are included.
                self._saved_tables = await self._writer.run(_all_rows)
            except BaseException:
                self._renewal = None
                waiting.set()
                raise
            # Closed before the new one is opened: closing removes -wal and -shm files by name.
            await asyncio.to_thread(self._writer.close)
        self._connection = await asyncio.to_thread(_create, self._path, self._saved_tables)
        self._writer = Writer(self._connection, self._path.name)
        self._identity = file_identity(self._path)
        self._renewal.set()
        self._renewal = None

    async def add(self, row: JobRow, record: Record, settings: bytes = b"") -> None:
        """Store a job, or replace the stored one with the same key. `settings` is the configuration of its runner as
        JSON, stored under the name `row.settings`; empty: none is stored. Raises sqlite3.Error if a write fails."""
        values = (*msgspec.structs.astuple(row), *_record_values(record))
        is_new = bool(settings) and row.settings not in self._stored_settings

        def store(db: sqlite3.Connection) -> None:
            if is_new:
                db.execute("insert or ignore into runners values (?, ?)", (row.settings, settings))
            _insert(db, values)

        await self._write(store)
        if is_new:
            self._stored_settings.add(row.settings)

    async def save(self, key: str, record: Record) -> None:
        statement = (
            "update jobs set phase = ?, log_offset = ?, log_crc = ?, result_seq = ?, cancel_told = ?, outcome = ?, "
            "machine = ? where key = ?"
        )
        values = (*_record_values(record), key)
        await self._write(lambda db: db.execute(statement, values))

    async def remove(self, key: str) -> None:
        def delete(db: sqlite3.Connection) -> None:
            db.execute(_OLD_PAYLOAD, (key,))
            db.execute("delete from jobs where key = ?", (key,))

        await self._write(delete)

    async def _write(self, operation: Callable[[sqlite3.Connection], object]) -> None:
        while self._renewal is not None:
            await self._renewal.wait()
        await self._writer.run(operation)

    def close(self) -> None:
        """Finish pending writes, then close the file."""
        self._writer.close()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Create the data folder if it is missing, and lock it within the `with` block. Raises FolderTakenError if another
    manager has locked it, DataFolderError if it cannot be used."""
    with ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(hold_lock(folder / LOCK_NAME))
        except InUseError as error:
            raise FolderTakenError(
                f"{folder}: the data folder is in use by another manager (process {error.holder}). "
                "Stop that one, or give --data another folder."
            ) from None
        except OSError as error:
            raise DataFolderError(f"{folder}: the data folder cannot be used: {error.strerror}") from None
        yield


def _open(path: Path) -> sqlite3.Connection:
    with suppress(OSError):  # SQLite reports the same error
        make_private(path)
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        connection.execute("pragma journal_mode = wal")
        connection.execute(f"pragma synchronous = {'full' if is_sync_enabled() else 'off'}")
        (version,) = connection.execute("pragma user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise DataFolderError(
                f"{path}: the journal has version {version}, this Remuda knows up to {SCHEMA_VERSION}. "
                "Use the newer Remuda that wrote it, or another data folder."
            )
        (result,) = connection.execute("pragma quick_check(1)").fetchone()
        if result != "ok":
            raise sqlite3.DatabaseError(result)
        if version < SCHEMA_VERSION:
            with connection:
                connection.execute("begin immediate")
                if version == 0:
                    connection.execute("drop table if exists jobs")
                    connection.execute(_SCHEMA)
                if version < 2:
                    for statement in _SINCE_2:
                        connection.execute(statement)
                    # Version 1 knew only the local machine.
                    connection.execute("update jobs set machine = 'local'")
                for statement in (*(_SINCE_3 if version < 3 else ()), *_SINCE_4):
                    connection.execute(statement)
                connection.execute(f"pragma user_version = {SCHEMA_VERSION}")
        connection.execute(f"{_ALL} limit 0").fetchall()
        connection.execute("delete from runners where digest not in (select settings from jobs)")
    except BaseException:
        connection.close()
        raise
    return connection


def is_damage(error: sqlite3.Error) -> bool:
    """True if the file's content is damaged, so that a retry does not help, unlike with a full disk."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    # Without a code it is a result of `quick_check`.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    is_part_missing = str(error).startswith(("no such table", "no such column"))
    return is_part_missing or code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def set_aside(path: Path, now: datetime) -> Path:
    """Rename a damaged journal with its -wal and -shm files, and return the new path. The main file goes first: after a
    crash in between, SQLite does not use the other parts for a new file."""
    target = path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%SZ}")
    while target.exists():
        target = target.with_name(f"{target.name}x")
    path.rename(target)
    for end in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(f"{path.name}{end}").rename(target.with_name(f"{target.name}{end}"))
    sync_folder(path.parent)
    return target


def damaged_journals(path: Path) -> tuple[str, ...]:
    """Return the paths of damaged journals that `set_aside` renamed; `path` is that of the current journal."""
    files = path.parent.glob(f"{path.name}.damaged-*")
    return tuple(sorted(str(file) for file in files if not file.name.endswith(("-wal", "-shm"))))


def _insert(db: sqlite3.Connection, values: Sequence[Any]) -> None:
    db.execute(_OLD_PAYLOAD, values[:1])
    row = [*values]
    payload, row[_PAYLOAD] = row[_PAYLOAD], b""
    cursor = db.execute(f"insert or replace into jobs ({_COLUMNS}) values ({', '.join('?' * len(row))})", row)
    db.execute("insert into payloads values (?, ?)", (cursor.lastrowid, payload))


def settings_name(settings: bytes) -> str:
    """Return the digest under which a runner configuration is stored, see `JobRow.settings`."""
    return hashlib.sha256(settings).hexdigest()[:16]


def _all_rows(connection: sqlite3.Connection) -> tuple[list[Any], list[Any]]:
    return (
        connection.execute(_ALL).fetchall(),
        connection.execute("select digest, settings from runners").fetchall(),
    )


def _create(path: Path, rows: tuple[list[Any], list[Any]]) -> sqlite3.Connection:
    """Create a journal file with the rows that `_all_rows` returned, after deleting leftover files at its path."""
    jobs, runners = rows
    for name in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        name.unlink(missing_ok=True)
    connection = _open(path)
    with connection:
        connection.execute("begin immediate")
        for values in jobs:
            _insert(connection, values)
        connection.executemany("insert into runners values (?, ?)", runners)
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
        record.machine,
    )


def _from_row(row: Sequence[Any]) -> tuple[JobRow, Record]:
    """Decode a row: its columns are the fields of `JobRow`, then those of `Record`, in their order."""
    job = dict(zip(JobRow.__struct_fields__, row, strict=False))
    record = dict(zip(Record.__struct_fields__, row[len(job) :], strict=True))
    record["phase"] = Phase(record["phase"])
    record["outcome"] = msgspec.json.decode(record["outcome"], type=Outcome) if record["outcome"] else None
    for values, flag in ((job, "sends_results"), (record, "cancel_told")):
        values[flag] = bool(values[flag])
    return JobRow(**job), Record(**record)
