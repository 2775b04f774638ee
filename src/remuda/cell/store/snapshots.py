"""Reads all rows of a cell as they are at one moment, from SQLite or PostgreSQL, for checks, backups and restores. A
backup is always a SQLite file, whichever database the cell uses, so it can be restored into either of them."""

import sqlite3
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from graphlib import TopologicalSorter
from itertools import islice
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from msgspec.structs import replace

from remuda.cell.errors import DataFolderError
from remuda.cell.settings import CellSettings
from remuda.cell.store import migrations
from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.store.sqlite import schema
from remuda.cell.values import Artifact, Job
from remuda.cell.values.lfs import LfsObject
from remuda.model.job import JobId

_NOT_ROWS = frozenset({"alembic_version", "cell", "probe", "sequences"})
_BATCH = 500
_SHORTENED = frozenset(
    {
        ("pipelines", "ref"),
        ("pipelines", "sha"),
        ("jobs", "request_id"),
        ("jobs", "resource_group"),
        ("resource_groups", "key"),
    }
)
"""Columns that SQLite stores as whole texts and that PostgreSQL may shorten; the body has the whole text."""
_GENERATED = frozenset(
    {("jobs", "ref"), ("jobs", "name")} | {("pipelines", n) for n in ("source", "name", "yaml_errors")}
)
"""Columns that SQLite computes from the body and that PostgreSQL may shorten."""


class Snapshot(Protocol):
    """A consistent view of the rows of a cell's database at one moment, without later changes."""

    cell_id: int
    revision: str
    where: str
    """The file or the address of the database, for messages."""

    def rows(self, sql: str) -> AsyncIterator[tuple[Any, ...]]:
        """Yield the rows of a query, read in batches. The SQL must be valid in both SQLite and PostgreSQL."""
        ...


class _SqliteSnapshot:
    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        revision = schema.read_revision(db)
        if revision is None:
            raise DataFolderError(f"{path} is not the database of a cell; give the data folder of a cell with --data")
        self.revision = revision
        self.cell_id = schema.read_owner(db)
        self.where = str(path)

    async def rows(self, sql: str) -> AsyncIterator[tuple[Any, ...]]:
        for row in self._db.execute(sql):
            yield row


class _PostgresSnapshot:
    def __init__(self, db: Any, revision: str, cell_id: int, where: str) -> None:
        self._db = db
        self.revision = revision
        self.cell_id = cell_id
        self.where = where

    async def rows(self, sql: str) -> AsyncIterator[tuple[Any, ...]]:
        async for row in self._db.cursor(sql, prefetch=_BATCH):
            yield tuple(row)


@asynccontextmanager
async def read(settings: CellSettings) -> AsyncIterator[Snapshot]:
    """Open a view of a cell's database as it is now. Raises DataFolderError if it has no tables or cannot be read."""
    if not settings.is_shared:
        path = settings.data / "cell.sqlite"
        with _open_for_reading(path) as db:
            db.execute("BEGIN")
            yield _SqliteSnapshot(db, path)
        return
    from remuda.cell.store.postgres import schema
    from remuda.cell.store.postgres.database import connect, where

    async with connect(settings.database) as server, server.transaction(isolation="repeatable_read", readonly=True):
        revision = await schema.read_revision(server)
        if revision is None:
            raise DataFolderError(
                f"{where(settings.database)} has no tables of a cell; give the database of a cell with --database"
            )
        cell_id = await server.fetchval("SELECT id FROM cell")
        yield _PostgresSnapshot(server, revision, cell_id, where(settings.database))


@contextmanager
def _open_for_reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)) as db:
            yield db
    except sqlite3.Error as error:
        raise DataFolderError(f"cannot read {path}: {error}; give the data folder of a cell with --data") from None


@contextmanager
def _open_for_writing(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        path.touch(mode=0o600)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            yield db
    except sqlite3.Error as error:
        raise DataFolderError(f"cannot write {path}: {error}; free some space there, or give another path") from None


def check_revision(snapshot: Snapshot) -> None:
    """Raise DataFolderError if the database was written by a newer release."""
    migrations.check(snapshot.where, snapshot.revision, None, snapshot.cell_id)


def remove_missing(
    path: Path, *, artifacts: Collection[Artifact], lfs_objects: Collection[LfsObject], traces: Collection[JobId]
) -> None:
    """Remove references to missing files from `path`, a SQLite file with the rows of a cell. The rows of `artifacts`
    and `lfs_objects` are deleted. The jobs in `traces`, whose logs are missing, are marked as erased."""
    with closing(sqlite3.connect(path)) as db, db:
        for artifact in artifacts:
            db.execute("DELETE FROM artifacts WHERE job_id = ? AND type = ?", (artifact.job_id, artifact.type))
        for stored in lfs_objects:
            db.execute("DELETE FROM lfs_objects WHERE project_id = ? AND oid = ?", (stored.project_id, stored.oid))
            db.execute("UPDATE lfs_usage SET bytes = bytes - ? WHERE project_id = ?", (stored.size, stored.project_id))
        for job_id in traces:
            (body,) = db.execute("SELECT body FROM jobs WHERE id = ?", (job_id,)).fetchone()
            job = replace(decode(Job, body), erased=True, trace_bytes=0)
            db.execute("UPDATE jobs SET body = ? WHERE id = ?", (encode(job), job_id))


async def save(settings: CellSettings, target: Path) -> None:
    """Write all rows of a cell, as they are now, into a new SQLite file. Raises DataFolderError if reading or writing
    fails, or if a PostgreSQL database does not have the schema of this release."""
    if not settings.is_shared:
        with _open_for_reading(settings.data / "cell.sqlite") as source, _open_for_writing(target) as db:
            source.backup(db)
        return
    async with read(settings) as snapshot:
        check_revision(snapshot)
        if snapshot.revision != migrations.HEAD:
            raise DataFolderError(
                f"the database has schema version {snapshot.revision}, not {migrations.HEAD}; "
                "`remuda cell migrate` brings it up to date"
            )
        with _open_for_writing(target) as db:
            schema.prepare(db, str(target), snapshot.cell_id)
            db.execute("PRAGMA foreign_keys = OFF")
            db.execute("BEGIN")
            await _fill(db, snapshot)
            db.execute("COMMIT")


async def _fill(db: sqlite3.Connection, snapshot: Snapshot) -> None:
    for table in _sort_tables(db):
        db.execute(f"DELETE FROM {table}")
        columns = [name for _, name, *_, hidden in db.execute(f"PRAGMA table_xinfo({table})") if not hidden]
        names = ", ".join(columns)
        insert = f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})"
        async for row in snapshot.rows(f"SELECT {names} FROM {table}"):
            db.execute(insert, row)
    for table, column in sorted(_SHORTENED):
        value = f"json_extract(CAST(body AS TEXT), '$.{column}')"
        db.execute(f"UPDATE {table} SET {column} = {value} WHERE {column} IS NOT NULL AND {column} != {value}")
    for table in migrations.ID_TABLES:
        async for last, is_called in snapshot.rows(f"SELECT last_value, is_called FROM {table}_id"):
            if is_called:
                db.execute("INSERT INTO sequences VALUES (?, ?)", (table, last))


def _sort_tables(db: sqlite3.Connection) -> Sequence[str]:
    """Return the tables that hold data, each after those its foreign keys refer to, as needed for inserting."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")} - _NOT_ROWS
    needs = {table: {row[2] for row in db.execute(f"PRAGMA foreign_key_list({table})")} for table in sorted(tables)}
    return list(TopologicalSorter(needs).static_order())


def migrate_file(path: Path) -> int:
    """Migrate a SQLite file to the schema of this release. Returns the id of the cell that it belongs to."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            return schema.prepare(db, str(path), None)
    except sqlite3.Error as error:
        raise DataFolderError(f"cannot use {path}: {error}") from None


async def load(source: Path, url: str, cell_id: int) -> None:
    """Copy the rows of a SQLite file into an empty PostgreSQL database, in one transaction. Raises DataFolderError if
    that database already contains a cell."""
    from remuda.cell.store.postgres import schema
    from remuda.cell.store.postgres.database import connect, where

    async with connect(url) as db, db.transaction():
        if await schema.read_revision(db) is not None:
            raise DataFolderError(f"{where(url)} holds a cell already; give an empty database")
        await schema.prepare(db, where(url), cell_id)
        with _open_for_reading(source) as file:
            await _copy_rows(file, db)


async def _copy_rows(source: sqlite3.Connection, db: Any) -> None:
    from remuda.cell.store.postgres.database import shorten, storable

    tables = _sort_tables(source)
    await db.execute(f"TRUNCATE {', '.join(tables)}")
    for table in tables:
        sql = "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped"
        columns = [row[0] for row in await db.fetch(sql, table)]
        shortened = {place for place, name in enumerate(columns) if (table, name) in _SHORTENED | _GENERATED}
        rows = source.execute(f"SELECT {', '.join(columns)} FROM {table}")
        while batch := list(islice(rows, _BATCH)):
            records = [
                tuple(
                    shorten(value) if place in shortened and value else storable(value)
                    for place, value in enumerate(row)
                )
                for row in batch
            ]
            await db.copy_records_to_table(table, records=records, columns=columns)
    for name, last in source.execute("SELECT name, last FROM sequences"):
        await db.execute(f"SELECT setval('{name}_id', $1)", last)
