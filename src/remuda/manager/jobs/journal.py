"""The journal: every job the manager has taken and not yet given back, in one SQLite file.

It is what lets a new process find the running jobs and go on. A row is in the file, synced, before the call that made
it returns; so a caller may act on it in the next line. Calls that come while the disk is busy share one transaction.
Only the manager that holds the data folder's lock opens it. What the values mean is decided in `core/life.py`.

A file that is removed under a running manager is still open here: `renew` writes all that is in it to a new one.
"""

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from remuda.lib.files import InUseError, is_disk_waited_for, make_private, sole_use, sync_folder
from remuda.lib.sqlite_writer import Writer
from remuda.manager.core.record import Outcome, Phase, Record
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
"""Applied to every new file, too: so there is one way to the newest form."""
_SINCE_3 = (
    "create table payloads (job integer primary key, payload blob not null) strict",
    "insert into payloads select rowid, payload from jobs",
    "update jobs set payload = x''",
)
"""A job's row is written several times in its life, and all of it each time: what is large and stays is apart."""
_SINCE_4 = ("alter table jobs add column manager text not null default ''",)
_COLUMNS = (
    "key, job_id, url, runner, runner_name, slot, sends_results, received_at, api_version, payload, settings, "
    "manager, phase, log_offset, log_crc, result_seq, cancel_told, outcome, machine"
)
_PAYLOAD = 9
"""Where it stands among these."""
_ALL = (
    f"select {_COLUMNS.replace('payload', 'payloads.payload')} from jobs join payloads on payloads.job = jobs.rowid"
    " order by received_at, key"
)
_OLD_PAYLOAD = "delete from payloads where job = (select rowid from jobs where key = ?)"


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
    settings: str = ""
    """Names the runner's configuration as it was then, see `Journal.settings`; empty: it is not known."""
    manager: str = ""
    """What its folders have of the manager that took it, see `JobPlace.manager`."""


class Journal:
    """Open it with the data folder locked; close it before the lock goes."""

    def __init__(self, path: Path) -> None:
        """JournalDamagedError: what is there is no journal any more, see `set_aside`."""
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
        self._identity = identity_of(path)
        self._renewal: asyncio.Event | None = None
        self._saved_tables: tuple[list[Any], list[Any]] = ([], [])
        self._stored_settings: set[str] = set()

    def jobs(self) -> list[tuple[JobRow, Record]]:
        """Everything in the journal, oldest first; a row of a form that nobody knows is told of, and stays."""
        try:
            found = self._connection.execute(_ALL).fetchall()
        except sqlite3.Error as error:
            raise DataFolderError(
                f"the journal cannot be read: {error}. Look after its disk, and start the manager again: it moves a "
                "journal aside that is damaged."
            ) from error
        jobs = []
        for row in found:
            try:
                jobs.append(_from_row(row))
            except (ValueError, msgspec.MsgspecError) as error:
                logger("manager").error("a row of the journal cannot be read; it stays", key=row[0], cause=str(error))
        return jobs

    def settings(self) -> dict[str, bytes]:
        """Configurations of runners that took jobs of the journal, by the name that `JobRow.settings` has."""
        try:
            return dict(self._connection.execute("select digest, settings from runners").fetchall())
        except sqlite3.Error as error:
            raise DataFolderError(f"the journal cannot be read: {error}") from error

    def is_there(self) -> bool:
        """Whether the file that is written is still the one that a new process would find."""
        return self._renewal is None and identity_of(self._path) == self._identity

    async def renew(self) -> None:
        """Put a new file in place of one that was removed, with all that was in it; whoever writes waits meanwhile.

        OSError, sqlite3.Error or DataFolderError: it cannot be made now, and nothing can be written until it is.
        """
        if self._renewal is None:
            self._renewal = waiting = asyncio.Event()
            try:
                # In the order of all writing: what was on its way is in there.
                self._saved_tables = await self._writer.run(_all_rows)
            except BaseException:
                self._renewal = None
                waiting.set()
                raise
            # Closed before the new one is opened: closing removes files by their names.
            await asyncio.to_thread(self._writer.close)
        self._connection = await asyncio.to_thread(_open_anew, self._path, self._saved_tables)
        self._writer = Writer(self._connection, self._path.name)
        self._identity = identity_of(self._path)
        self._renewal.set()
        self._renewal = None

    async def add(self, row: JobRow, record: Record, settings: bytes = b"") -> None:
        """A job came in."""
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
        """A job went on."""
        statement = (
            "update jobs set phase = ?, log_offset = ?, log_crc = ?, result_seq = ?, cancel_told = ?, outcome = ?, "
            "machine = ? where key = ?"
        )
        values = (*_record_values(record), key)
        await self._write(lambda db: db.execute(statement, values))

    async def remove(self, key: str) -> None:
        """A job is over."""

        def delete(db: sqlite3.Connection) -> None:
            db.execute(_OLD_PAYLOAD, (key,))
            db.execute("delete from jobs where key = ?", (key,))

        await self._write(delete)

    async def _write(self, operation: Callable[[sqlite3.Connection], object]) -> None:
        while self._renewal is not None:
            await self._renewal.wait()
        await self._writer.run(operation)

    def close(self) -> None:
        """Wait for what is being written, then close."""
        self._writer.close()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The manager's folder, for this process alone as long as this lasts."""
    with ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(sole_use(folder / LOCK_NAME))
        except InUseError as error:
            raise FolderTakenError(
                f"{folder}: the data folder is in use by another manager (process {error.holder}). "
                "Stop that one, or give --data another folder."
            ) from None
        except OSError as error:
            raise DataFolderError(f"{folder}: the data folder cannot be used: {error.strerror}") from None
        yield


def identity_of(path: Path) -> tuple[int, int] | None:
    """Which file is there; None: none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open(path: Path) -> sqlite3.Connection:
    with suppress(OSError):  # whatever it is, SQLite says it, too
        make_private(path)
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        connection.execute("pragma journal_mode = wal")
        connection.execute(f"pragma synchronous = {'full' if is_disk_waited_for() else 'off'}")
        (version,) = connection.execute("pragma user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise DataFolderError(
                f"{path}: the journal has version {version}, this Remuda knows up to {SCHEMA_VERSION}. "
                "Use the newer Remuda that wrote it, or another data folder."
            )
        (found,) = connection.execute("pragma quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        if version < SCHEMA_VERSION:
            with connection:
                connection.execute("begin immediate")
                if version == 0:
                    connection.execute("drop table if exists jobs")
                    connection.execute(_SCHEMA)
                if version < 2:
                    for statement in _SINCE_2:
                        connection.execute(statement)
                    # There was one machine then.
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
    """Whether a file is not what was written to it, so that to try again does not help. A full disk, a disk that does
    not answer, or a file that is somebody else's are not damage."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    # Without a code it is what `quick_check` has found.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    is_part_missing = str(error).startswith(("no such table", "no such column"))
    return is_part_missing or code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def set_aside(path: Path, now: datetime) -> Path:
    """Move a journal out of the way, with what belongs to it; its new name.

    The file itself first: whoever dies in between leaves parts that SQLite does not take for those of a new file.
    """
    kept = path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%SZ}")
    while kept.exists():
        kept = kept.with_name(f"{kept.name}x")
    path.rename(kept)
    for end in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(f"{path.name}{end}").rename(kept.with_name(f"{kept.name}{end}"))
    sync_folder(path.parent)
    return kept


def damaged_journals(path: Path) -> tuple[str, ...]:
    """Those that have been moved aside and are still there."""
    found = path.parent.glob(f"{path.name}.damaged-*")
    return tuple(sorted(str(one) for one in found if not one.name.endswith(("-wal", "-shm"))))


def _insert(db: sqlite3.Connection, values: Sequence[Any]) -> None:
    """A job with its payload."""
    db.execute(_OLD_PAYLOAD, values[:1])
    row = [*values]
    payload, row[_PAYLOAD] = row[_PAYLOAD], b""
    done = db.execute(f"insert or replace into jobs ({_COLUMNS}) values ({', '.join('?' * len(row))})", row)
    db.execute("insert into payloads values (?, ?)", (done.lastrowid, payload))


def settings_name(settings: bytes) -> str:
    """What `JobRow.settings` has for these."""
    return hashlib.sha256(settings).hexdigest()[:16]


def _all_rows(connection: sqlite3.Connection) -> tuple[list[Any], list[Any]]:
    return (
        connection.execute(_ALL).fetchall(),
        connection.execute("select digest, settings from runners").fetchall(),
    )


def _open_anew(path: Path, rows: tuple[list[Any], list[Any]]) -> sqlite3.Connection:
    """A journal with these rows where none is, or only what was left of one."""
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
    key, job_id, url, runner, name, slot, sends_results, received_at, api_version, payload, *rest = row
    settings, manager, phase, log_offset, log_crc, result_seq, cancel_told, outcome, machine = rest
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
            settings=settings,
            manager=manager,
        ),
        Record(
            phase=Phase(phase),
            log_offset=log_offset,
            log_crc=log_crc,
            result_seq=result_seq,
            cancel_told=bool(cancel_told),
            outcome=msgspec.json.decode(outcome, type=Outcome) if outcome else None,
            machine=machine,
        ),
    )
