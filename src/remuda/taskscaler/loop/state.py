"""Reads and writes the state file of a fleet (SQLite), from which a scaler continues after a crash.

It is written before changes have effects outside, such as a request before its plugin is called. A row that cannot be
read is skipped. A file that is no database is renamed, and updates of the groups find the instances again. A file that
cannot be opened now, as on a full disk, is left as it is, with a StateError. `StateWriter` writes changes in their
order, then calls the callbacks that wait for these changes; while writing fails, the callbacks wait."""

import asyncio
import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.files import is_sync_enabled
from remuda.lib.sqlite_writer import Writer
from remuda.taskscaler.fleet.requests import PendingRequest
from remuda.taskscaler.fleet.roster import Roster
from remuda.taskscaler.fleet.stored_values import Changes, Stored, StoredGroup, StoredInstance
from remuda.telemetry.logs import Logger, logger

SCHEMA_VERSION = 1
AGAIN = Backoff(first_seconds=0.5, ceiling_seconds=30.0)
_SCHEMA = """
create table if not exists instances (name text primary key, body blob not null) strict;
create table if not exists requests (name integer primary key, body blob not null) strict;
create table if not exists groups (name text primary key, body blob not null) strict;
"""
_NO_DATABASE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""Errors that mean that the file is broken. Other errors, such as a full disk, may be temporary."""
_encode = msgspec.json.Encoder().encode
T = TypeVar("T")


class Writing(Protocol):
    """Interface of `lib.sqlite_writer.Writer`, so that tests can replace it."""

    async def run(self, operation: Callable[[sqlite3.Connection], T]) -> T: ...

    def close(self) -> None: ...


MakeWriter = Callable[[sqlite3.Connection, str], Writing]


class StateError(Exception):
    """The state file cannot be opened or read; the text says what to do."""


def state_path(folder: Path, name: str) -> Path:
    """Path of a fleet's state file. Contains a digest if the name is too long or has characters other than letters,
    digits and `._-`."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:80].lstrip(".")
    if plain != name:
        plain = f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return folder / f"{plain}.db"


class StateFile:
    """The state file of one fleet. The constructor creates a missing file and renames one that is no database. Raises
    StateError, OSError or sqlite3.Error if it cannot open, create or rename the file."""

    def __init__(self, path: Path, *, writer: MakeWriter = Writer) -> None:
        self._log = logger("scaler").bind(file=str(path))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            db = _open_database(path)
        except sqlite3.DatabaseError as error:
            if _code(error) not in _NO_DATABASE:
                raise _unusable(path, error) from error
            aside = _free_name(path)
            self._log.error(
                "state file is not a database; renaming it and starting with an empty one",
                cause=str(error),
                aside=str(aside),
            )
            for ending in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
            db = _open_database(path)
        self._path = path
        self._db = db
        self._writer = writer(db, path.name)

    def read(self) -> Stored:
        """Read all rows; delete undecodable ones. Call it before the first write. StateError if it is unreadable."""
        broken: list[tuple[str, str | int]] = []
        try:
            stored = _read(self._db, self._log, broken)
            for table, name in broken:
                self._db.execute(f"delete from {table} where name = ?", (name,))
        except sqlite3.Error as error:
            raise _unusable(self._path, error) from error
        return stored

    async def write(self, changes: Changes) -> None:
        """Write changes in one transaction, which is on disk when this returns."""
        await self._writer.run(lambda db: _write(db, changes))

    def close(self) -> None:
        self._writer.close()


def read_state(path: Path) -> Stored:
    """Read a state file (also one in use); change nothing. A missing one is empty. Of a damaged one the readable part
    is returned, with `is_whole` false. Raises StateError if it cannot be read for another reason."""
    if not path.exists():
        return Stored()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return _read(db, logger("scaler").bind(file=str(path)), [])
    except sqlite3.Error as error:
        raise _unusable(path, error) from error


class StateWriter:
    def __init__(self, file: StateFile, roster: Roster, clock: Clock) -> None:
        self._file = file
        self._roster = roster
        self._clock = clock
        self._wanted = asyncio.Event()
        self._then: list[Callable[[], None]] = []
        self._lock = asyncio.Lock()
        self.error = ""

    def mark_changed(self, then: Callable[[], None] | None = None) -> None:
        """Make `run` write the roster's changes soon. `then` is called when all changes up to now are on disk."""
        if then is not None:
            self._then.append(then)
        self._wanted.set()

    async def flush(self) -> None:
        """Wait until all changes up to now are on disk."""
        done = asyncio.Event()
        self.mark_changed(done.set)
        await done.wait()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self.write()

    async def write(self) -> None:
        """Write all changes of the roster up to now. Retries forever. Concurrent calls run one after the other."""
        async with self._lock:
            await self._write()

    async def _write(self) -> None:
        then, self._then = self._then, []
        failures = 0
        try:
            while True:
                changes = self._roster.take_changes()
                try:
                    if not changes.is_empty:
                        await self._file.write(changes)
                except sqlite3.Error as error:
                    self._roster.restore_changes(changes)
                    failures += 1
                    if not self.error:
                        logger("scaler").error(
                            "cannot write the state file; retrying, no job gets a slot until it is written",
                            fleet=self._roster.setup.name,
                            cause=str(error),
                        )
                    self.error = str(error)
                    await self._clock.sleep(AGAIN.delay(failures))
                except BaseException:
                    self._roster.restore_changes(changes)
                    raise
                else:
                    break
        except BaseException:
            self._then = then + self._then
            raise
        self.error = ""
        for call in then:
            call()


def _open_database(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("pragma journal_mode = wal")
        db.execute(f"pragma synchronous = {'full' if is_sync_enabled() else 'off'}")
        (version,) = db.execute("pragma user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise StateError(
                f"{path} was written by a newer version (schema {version}); use that version, or remove the file"
            )
        if version < SCHEMA_VERSION:
            # Not for the current schema: such a file must be readable on a full disk, too.
            db.executescript(_SCHEMA)
            db.execute(f"pragma user_version = {SCHEMA_VERSION}")
    except BaseException:
        db.close()
        raise
    return db


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _unusable(path: Path, error: sqlite3.Error) -> StateError:
    return StateError(f"{path} cannot be used: {error}; check whether its disk is full or another process uses it")


def _free_name(path: Path) -> Path:
    """An unused path beside `path`, to which a broken state file can be renamed."""
    names = (f"{path.name}.broken{f'-{n}' if n else ''}" for n in count())
    return next(aside for name in names if not (aside := path.with_name(name)).exists())


def _read(db: sqlite3.Connection, log: Logger, broken: list[tuple[str, str | int]]) -> Stored:
    lost: list[str] = []
    stored = Stored(
        instances=tuple(_rows(db, "instances", StoredInstance, log, broken, lost)),
        requests=tuple(_rows(db, "requests", PendingRequest, log, broken, lost)),
        groups=tuple(_rows(db, "groups", StoredGroup, log, broken, lost)),
    )
    return msgspec.structs.replace(stored, is_whole=not (broken or lost))


def _rows(
    db: sqlite3.Connection,
    table: str,
    kind: type[T],
    log: Logger,
    broken: list[tuple[str, str | int]],
    lost: list[str],
) -> Iterator[T]:
    with _skip_broken_table(table, log, lost):
        for name, body in db.execute(f"select name, body from {table} order by name"):
            try:
                yield msgspec.json.decode(body, type=kind)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                log.error(
                    "cannot read a row of the state file; continuing without its content",
                    table=table,
                    row=name,
                    cause=str(error),
                )
                broken.append((table, name))


@contextmanager
def _skip_broken_table(table: str, log: Logger, lost: list[str]) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if _code(error) in _NO_DATABASE:
            lost.append(table)
        elif _code(error) != sqlite3.SQLITE_ERROR:  # SQLITE_ERROR: there is no such table
            raise
        log.error(
            "cannot read a table of the state file; continuing without its content", table=table, cause=str(error)
        )


def _write(db: sqlite3.Connection, changes: Changes) -> None:
    tables: tuple[tuple[str, dict[Any, Any]], ...] = (
        ("instances", dict(changes.instances)),
        ("requests", dict(changes.requests)),
        ("groups", dict(changes.groups)),
    )
    for table, rows in tables:
        for name, row in rows.items():
            if row is None:
                db.execute(f"delete from {table} where name = ?", (name,))
            else:
                db.execute(f"insert or replace into {table} values (?, ?)", (name, _encode(row)))
