"""A SQLite file as the store's parts use it: opened, written through one writer, read beside it.

Nothing is decided here but how failures of the database are told. `sqlite` and `sqlite_starts` build on it.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from remuda.cell.errors import DataFolderError, StoreError
from remuda.cell.store.row_bodies import decode
from remuda.cell.store.sqlite import rows
from remuda.cell.store.sqlite.schema import prepare
from remuda.cell.values import Page
from remuda.lib.files import is_disk_waited_for, make_private
from remuda.lib.ids import IdRange, IdsExhaustedError, range_of_cell
from remuda.lib.sqlite_writer import ClosedError, Writer

T = TypeVar("T")

_BUSY_SECONDS = 5.0


def store_error(error: sqlite3.Error) -> StoreError:
    """What an operator should know about a failing database."""
    advice = {
        "SQLITE_FULL": "free some space where the data folder is",
        "SQLITE_READONLY": "make the data folder writable for this user",
        "SQLITE_BUSY": "another process uses the database; end it",
        "SQLITE_LOCKED": "another process uses the database; end it",
        "SQLITE_CORRUPT": "the file is damaged; restore it from a backup",
        "SQLITE_NOTADB": "the file is no database; restore it from a backup",
    }
    name = str(getattr(error, "sqlite_errorname", ""))
    hint = next((text for start, text in advice.items() if name.startswith(start)), "check the data folder's disk")
    return StoreError(f"the store cannot do this now: {error}; {hint}")


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )


def _close_to_others(path: Path) -> None:
    """Make the file, and those that SQLite puts beside it with the same mode, this user's alone."""
    with suppress(OSError):  # whatever it is, SQLite says it, too
        make_private(path)
        for name in (f"{path.name}-wal", f"{path.name}-shm"):
            if (beside := path.with_name(name)).exists():
                make_private(beside)


class SqliteFile:
    """One file: a writer, a reader, and the ids it gives out."""

    def __init__(self, writer: Writer, path: Path, ids: IdRange) -> None:
        self._writer = writer
        self._path = path
        self._db = _reader(path)
        self._ids = ids

    @classmethod
    def open(cls, path: Path, cell_id: int) -> Self:
        """Open or make the file; DataFolderError when it cannot be used."""
        try:
            _close_to_others(path)
            db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                synchronous = "FULL" if is_disk_waited_for() else "OFF"
                for pragma in ("journal_mode = WAL", f"synchronous = {synchronous}", "foreign_keys = ON"):
                    db.execute(f"PRAGMA {pragma}")
                prepare(db, str(path), cell_id)
                return cls(Writer(db, path.name), path, range_of_cell(cell_id))
            except BaseException:
                db.close()
                raise
        except sqlite3.Error as error:
            raise DataFolderError(f"cannot open {path}: {store_error(error)}") from error

    async def close(self) -> None:
        self._db.close()
        await asyncio.to_thread(self._writer.close)

    async def warm_up(self) -> None:
        return

    async def check_writable(self) -> None:
        await self._write(
            lambda db: db.execute("INSERT INTO probe VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET writes = writes + 1")
        )

    async def _write(self, operation: Callable[[sqlite3.Connection], T], *, is_statement: bool = False) -> T:
        """What the operation came to, once it is committed. `is_statement`: it changes something once at most."""
        try:
            return await self._writer.run(operation, is_statement=is_statement)
        except IdsExhaustedError as error:
            raise StoreError(f"{error}; give the cell a further range") from error
        except ClosedError:
            raise StoreError("the store is closed; the cell stops") from None
        except sqlite3.Error as error:
            raise store_error(error) from error

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise store_error(error) from error

    async def _rows_beside(self, sql: str, *values: Any) -> list[Any]:
        """The same in a thread, by a connection of its own: for what may take long, so that nobody waits for it."""

        def read() -> list[Any]:
            with closing(_reader(self._path)) as db:
                return db.execute(sql, values).fetchall()

        try:
            return await asyncio.to_thread(read)
        except sqlite3.Error as error:
            raise store_error(error) from error

    def _one(self, kind: type[T], sql: str, *values: Any) -> T | None:
        found = self._rows(sql, *values)
        return decode(kind, found[0][0]) if found else None

    def _all(self, kind: type[T], sql: str, *values: Any) -> list[T]:
        return [decode(kind, row[0]) for row in self._rows(sql, *values)]

    def _page(
        self,
        kind: type[T],
        table: str,
        where: Mapping[str, Any],
        page: Page,
        order: str = "id DESC",
        states: Sequence[str] = (),
    ) -> tuple[list[T], int]:
        """Newest first unless told otherwise, of the rows for which every condition holds.

        Those of several `states` are merged: each state has its rows in order in an index, and only as many as are
        wanted are looked at.
        """
        where = {**where, **page.bounds}
        each = [{**where, "state = ?": state} for state in dict.fromkeys(states)] or [where]
        of = [f"FROM {table} WHERE {' AND '.join(conditions) or '1'}" for conditions in each]
        values = [value for conditions in each for value in conditions.values() if value is not None]
        count = " UNION ALL ".join(f"SELECT count(*) {part}" for part in of)
        total = sum(row[0] for row in self._rows(count, *values)) if page.counted else 0
        columns = "body" if len(of) == 1 else "body, id"
        sql = " UNION ALL ".join(f"SELECT {columns} {part}" for part in of)
        sql = f"{sql} ORDER BY {page.order or order} LIMIT ? OFFSET ?"
        return self._all(kind, sql, *values, page.size, (page.number - 1) * page.size), total

    def _draw(self, db: sqlite3.Connection, table: str) -> int:
        row = db.execute("SELECT last FROM sequences WHERE name = ?", (table,)).fetchone()
        number = self._ids.after(row[0] if row else None)
        rows.changed(db, "INSERT OR REPLACE INTO sequences VALUES (?, ?)", table, number)
        return number
