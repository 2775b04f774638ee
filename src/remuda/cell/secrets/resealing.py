"""Encrypts all secrets in a database with the current key: those in plain text, and those encrypted with an older key.

Each batch of rows is a transaction, and a row is changed only if it is still the same as when it was read. So processes
of the cell may run meanwhile, and after an interruption the next run continues."""

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any, Protocol

from remuda.cell.errors import DataFolderError
from remuda.cell.secrets.sealed_store import FIELDS, SETTING, SIGNING_KEY, Secrets
from remuda.cell.secrets.sealing import Seals, key_of
from remuda.cell.settings import CellSettings
from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.store.sqlite.database import with_question_marks
from remuda.cell.values import Artifact, Job, Pipeline, ProjectVariable, Schedule
from remuda.cell.values.hooks import DeployToken, Hook
from remuda.pipeline import JobSpec

_BATCH = 200
_BUSY_SECONDS = 30.0

TABLES: Sequence[tuple[str, tuple[str, ...], str, type[Any] | str]] = (
    ("settings", ("name",), "value", SETTING),
    ("signing_keys", ("number",), "pem", SIGNING_KEY),
    ("variables", ("project_id", "group_id", "key", "environment_scope"), "body", ProjectVariable),
    ("schedules", ("id",), "body", Schedule),
    ("pipelines", ("id",), "body", Pipeline),
    ("jobs", ("id",), "body", Job),
    ("specs", ("id",), "body", JobSpec),
    ("artifacts", ("job_id", "type"), "body", Artifact),
    ("deploy_tokens", ("id",), "body", DeployToken),
    ("hooks", ("id",), "body", Hook),
)
"""Table, key columns, secret column, and its content: the type of a value, or the purpose of a text."""


class _Database(Protocol):
    async def rows(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]: ...

    async def update(self, sql: str, changes: Sequence[Sequence[Any]]) -> None: ...


async def reseal(settings: CellSettings, seals: Seals) -> int:
    """Encrypt all secrets in the database with the first key of `seals`. Returns the number of rows changed."""
    secrets, changed = Secrets(seals), 0
    async with _open_database(settings) as db:
        for table, key, column, kind in TABLES:
            async for batch in _batches(db, table, key, column):
                changes = [(*row, new) for row in batch if (new := _reseal(secrets, kind, row[-1])) is not None]
                names = " AND ".join(f"{name} = ${number}" for number, name in enumerate((*key, column), 1))
                if changes:
                    await db.update(f"UPDATE {table} SET {column} = ${len(key) + 2} WHERE {names}", changes)
                changed += len(changes)
    return changed


async def count_keys_in_use(settings: CellSettings) -> Counter[str]:
    """Return how many rows each key encrypts, by key id. The empty id counts rows with unencrypted secrets."""
    counts: Counter[str] = Counter()
    async with _open_database(settings) as db:
        for table, key, column, kind in TABLES:
            async for batch in _batches(db, table, key, column):
                for row in batch:
                    counts.update(_keys(kind, row[-1]))
    return counts


def _keys(kind: type[Any] | str, stored: Any) -> set[str]:
    if isinstance(kind, str):
        return {key_of(_text(stored))}
    value = decode(kind, stored)
    fields = [getattr(value, name) for name in FIELDS[kind]]
    return {key_of(field.get("", "") if isinstance(field, dict) else field) for field in fields if field}


def _reseal(secrets: Secrets, kind: type[Any] | str, stored: Any) -> Any:
    """Return a column's value encrypted with the current key; None if it already is. `kind`: the type of the stored
    value or, for a column that is one encrypted text, the purpose with which it was encrypted (a string)."""
    if isinstance(kind, str):
        text = _text(stored)
        if secrets.is_current(text):
            return None
        new = secrets.seals.seal(secrets.seals.unseal(text, kind), kind)
        return new if isinstance(stored, str) else new.encode()
    value = decode(kind, stored)
    return None if secrets.is_current(value) else encode(secrets.seal_value(secrets.open_value(value)))


def _text(stored: Any) -> str:
    return stored if isinstance(stored, str) else bytes(stored).decode()


async def _batches(
    db: _Database, table: str, key: tuple[str, ...], column: str
) -> AsyncIterator[Sequence[Sequence[Any]]]:
    names = ", ".join(key)
    ordered = f"ORDER BY {names} LIMIT {_BATCH}"
    batch = await db.rows(f"SELECT {names}, {column} FROM {table} {ordered}")
    while batch:
        yield batch
        places = ", ".join(f"${number}" for number in range(1, len(key) + 1))
        sql = f"SELECT {names}, {column} FROM {table} WHERE ({names}) > ({places}) {ordered}"
        batch = await db.rows(sql, *batch[-1][: len(key)])


@asynccontextmanager
async def _open_database(settings: CellSettings) -> AsyncIterator[_Database]:
    if settings.is_shared:
        from remuda.cell.store.postgres.database import connect

        async with connect(settings.database) as server:
            yield _Postgres(server)
        return
    path = settings.data / "cell.sqlite"
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
            # Overwritten secrets must not stay readable in the file.
            db.execute("PRAGMA secure_delete = ON")
            database = _Sqlite(db)
            yield database
            if database.is_changed:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        raise DataFolderError(
            f"cannot read or encrypt the secrets in {path}: {error}; nothing is lost, try again"
        ) from None


class _Sqlite:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.is_changed = False

    async def rows(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        return self._db.execute(with_question_marks(sql), values).fetchall()

    async def update(self, sql: str, changes: Sequence[Sequence[Any]]) -> None:
        self.is_changed = True
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany(with_question_marks(sql), changes)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise


class _Postgres:
    def __init__(self, db: Any) -> None:
        self._db = db

    async def rows(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        return [tuple(row) for row in await self._db.fetch(sql, *values)]

    async def update(self, sql: str, changes: Sequence[Sequence[Any]]) -> None:
        # Rows are locked in the order of their keys, as in all transactions that lock several.
        async with self._db.transaction():
            await self._db.executemany(sql, changes)


def compact(settings: CellSettings) -> None:
    """Rewrite the SQLite file of a stopped cell, so that no deleted secrets are left. Does nothing for PostgreSQL."""
    if settings.is_shared:
        return
    try:
        with closing(sqlite3.connect(settings.data / "cell.sqlite", timeout=_BUSY_SECONDS, isolation_level=None)) as db:
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        raise DataFolderError(f"cannot compact {settings.data / 'cell.sqlite'}: {error}") from None
