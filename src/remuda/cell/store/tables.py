"""All rows of a cell's store at one moment, whichever database they are in: for checks, backups and restores.

A backup is always a SQLite file, so a cell can be restored into the other kind of database, too. Nothing is decided
here but how a row of one becomes a row of the other: the bodies are the same, and so are the columns, except that
PostgreSQL has stand-ins for texts that it cannot hold or that no index takes (`postgres_access.plain`).
"""

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
from remuda.model.job import JobId

_NOT_ROWS = frozenset({"alembic_version", "cell", "probe", "sequences"})
_BATCH = 500
_TEXTS = frozenset({("pipelines", "ref"), ("pipelines", "sha"), ("jobs", "request_id"), ("jobs", "resource_group")})
"""Columns of SQLite of which PostgreSQL may hold a stand-in; the body has the text itself."""
_COPIES = frozenset({("jobs", "ref"), ("jobs", "name")} | {("pipelines", n) for n in ("source", "name", "yaml_errors")})
"""Columns that SQLite reads from the body, and of which PostgreSQL may hold a stand-in."""


class Tables(Protocol):
    """What is stored, at one moment."""

    cell_id: int
    revision: str
    where: str
    """Which database it is."""

    def rows(self, sql: str) -> AsyncIterator[tuple[Any, ...]]:
        """What a query finds, a piece at a time; the SQL is what both databases understand."""
        ...


class _SqliteTables:
    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        revision = schema.revision(db)
        if revision is None:
            raise DataFolderError(f"{path} is no store of a cell; give the data folder of a cell with --data")
        self.revision = revision
        self.cell_id = schema.owner(db)
        self.where = str(path)

    async def rows(self, sql: str) -> AsyncIterator[tuple[Any, ...]]:
        for row in self._db.execute(sql):
            yield row


class _PostgresTables:
    def __init__(self, db: Any, revision: str, cell_id: int, where: str) -> None:
        self._db = db
        self.revision = revision
        self.cell_id = cell_id
        self.where = where

    async def rows(self, sql: str) -> AsyncIterator[tuple[Any, ...]]:
        async for row in self._db.cursor(sql, prefetch=_BATCH):
            yield tuple(row)


@asynccontextmanager
async def read(settings: CellSettings) -> AsyncIterator[Tables]:
    """A cell's rows; others may go on changing them, which is not seen here. DataFolderError when there are none."""
    if not settings.is_shared:
        path = settings.data / "cell.sqlite"
        with _reading(path) as db:
            db.execute("BEGIN")
            yield _SqliteTables(db, path)
        return
    from remuda.cell.store.postgres import schema
    from remuda.cell.store.postgres.database import connect, where

    async with connect(settings.database) as server, server.transaction(isolation="repeatable_read", readonly=True):
        revision = await schema.revision(server)
        if revision is None:
            raise DataFolderError(f"{where(settings.database)} holds no store of a cell")
        cell_id = await server.fetchval("SELECT id FROM cell")
        yield _PostgresTables(server, revision, cell_id, where(settings.database))


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)) as db:
            yield db
    except sqlite3.Error as error:
        raise DataFolderError(f"cannot read {path}: {error}; give the data folder of a cell with --data") from None


@contextmanager
def _writing(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        path.touch(mode=0o600)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            yield db
    except sqlite3.Error as error:
        raise DataFolderError(f"cannot write {path}: {error}; free some space there, or give another place") from None


def check_known(tables: Tables) -> None:
    """DataFolderError when the tables are of a newer release."""
    migrations.check(tables.where, tables.revision, None, tables.cell_id)


def forget(path: Path, *, artifacts: Collection[Artifact], traces: Collection[JobId]) -> None:
    """Take out of a SQLite file what is not there any more: rows of artifacts, and what jobs say of their logs."""
    with closing(sqlite3.connect(path)) as db, db:
        for artifact in artifacts:
            db.execute("DELETE FROM artifacts WHERE job_id = ? AND type = ?", (artifact.job_id, artifact.type))
        for job_id in traces:
            (body,) = db.execute("SELECT body FROM jobs WHERE id = ?", (job_id,)).fetchone()
            job = replace(decode(Job, body), erased=True, trace_bytes=0)
            db.execute("UPDATE jobs SET body = ? WHERE id = ?", (encode(job), job_id))


async def save(settings: CellSettings, target: Path) -> None:
    """Write all rows, as they are at one moment, into a new SQLite file."""
    if not settings.is_shared:
        with _reading(settings.data / "cell.sqlite") as source, _writing(target) as db:
            source.backup(db)
        return
    async with read(settings) as tables:
        check_known(tables)
        if tables.revision != migrations.HEAD:
            raise DataFolderError(
                f"the database has schema version {tables.revision}, not {migrations.HEAD}; "
                "`remuda cell migrate` brings it up to date"
            )
        with _writing(target) as db:
            schema.prepare(db, str(target), tables.cell_id)
            db.execute("PRAGMA foreign_keys = OFF")
            db.execute("BEGIN")
            await _fill(db, tables)
            db.execute("COMMIT")


async def _fill(db: sqlite3.Connection, tables: Tables) -> None:
    for table in _ordered(db):
        db.execute(f"DELETE FROM {table}")
        columns = [name for _, name, *_, hidden in db.execute(f"PRAGMA table_xinfo({table})") if not hidden]
        names = ", ".join(columns)
        insert = f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})"
        async for row in tables.rows(f"SELECT {names} FROM {table}"):
            db.execute(insert, row)
    for table, column in sorted(_TEXTS):
        value = f"json_extract(CAST(body AS TEXT), '$.{column}')"
        db.execute(f"UPDATE {table} SET {column} = {value} WHERE {column} IS NOT NULL AND {column} != {value}")
    for table in migrations.ID_TABLES:
        async for last, is_called in tables.rows(f"SELECT last_value, is_called FROM {table}_id"):
            if is_called:
                db.execute("INSERT INTO sequences VALUES (?, ?)", (table, last))


def _ordered(db: sqlite3.Connection) -> Sequence[str]:
    """The tables with rows, those that are referred to first."""
    found = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")} - _NOT_ROWS
    needs = {table: {row[2] for row in db.execute(f"PRAGMA foreign_key_list({table})")} for table in sorted(found)}
    return list(TopologicalSorter(needs).static_order())


def up_to_date(path: Path) -> int:
    """Migrate a SQLite file to what this release works with; whose it is."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            return schema.prepare(db, str(path), None)
    except sqlite3.Error as error:
        raise DataFolderError(f"cannot use {path}: {error}") from None


async def load(source: Path, url: str, cell_id: int) -> None:
    """Bring all rows of a SQLite file, which is up to date, into an empty PostgreSQL database; all or none."""
    from remuda.cell.store.postgres import schema
    from remuda.cell.store.postgres.database import connect, where

    async with connect(url) as db, db.transaction():
        if await schema.revision(db) is not None:
            raise DataFolderError(f"{where(url)} holds a cell already; give an empty database")
        await schema.prepare(db, where(url), cell_id)
        with _reading(source) as rows:
            await _load(rows, db)


async def _load(source: sqlite3.Connection, db: Any) -> None:
    from remuda.cell.store.postgres.database import shorten

    ordered = _ordered(source)
    await db.execute(f"TRUNCATE {', '.join(ordered)}")
    for table in ordered:
        sql = "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped"
        columns = [row[0] for row in await db.fetch(sql, table)]
        cut = {at for at, name in enumerate(columns) if (table, name) in _TEXTS | _COPIES}
        found = source.execute(f"SELECT {', '.join(columns)} FROM {table}")
        while batch := list(islice(found, _BATCH)):
            records = [
                tuple(shorten(value) if at in cut and value else _held(value) for at, value in enumerate(row))
                for row in batch
            ]
            await db.copy_records_to_table(table, records=records, columns=columns)
    for name, last in source.execute("SELECT name, last FROM sequences"):
        await db.execute(f"SELECT setval('{name}_id', $1)", last)


def _held(value: Any) -> Any:
    """A value as PostgreSQL holds it."""
    from remuda.cell.store.postgres.database import without_nul

    return without_nul(value) if isinstance(value, str) else value
