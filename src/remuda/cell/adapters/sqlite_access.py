"""A SQLite file as the store's parts use it: opened, written through one writer, read beside it.

Nothing is decided here but how failures of the database are told. `sqlite` and `sqlite_starts` build on it.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from remuda.cell.adapters import sqlite_rows as rows
from remuda.cell.adapters.bodies import decode
from remuda.cell.adapters.sqlite_schema import prepare
from remuda.cell.errors import DataFolderError, StoreError
from remuda.cell.values import Page
from remuda.lib.files import is_disk_waited_for
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


class SqliteFile:
    """One file: a writer, a reader, and the ids it gives out."""

    def __init__(self, writer: Writer, reader: sqlite3.Connection, ids: IdRange) -> None:
        self._writer = writer
        self._db = reader
        self._ids = ids

    @classmethod
    def open(cls, path: Path, cell_id: int) -> Self:
        """Open or make the file; DataFolderError when it cannot be used."""
        try:
            db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                synchronous = "FULL" if is_disk_waited_for() else "OFF"
                for pragma in ("journal_mode = WAL", f"synchronous = {synchronous}", "foreign_keys = ON"):
                    db.execute(f"PRAGMA {pragma}")
                prepare(db, str(path), cell_id)
                reader = sqlite3.connect(
                    f"file:{quote(str(path))}?mode=ro",
                    uri=True,
                    timeout=_BUSY_SECONDS,
                    isolation_level=None,
                    check_same_thread=False,
                )
            except BaseException:
                db.close()
                raise
        except sqlite3.Error as error:
            raise DataFolderError(f"cannot open {path}: {store_error(error)}") from error
        return cls(Writer(db, path.name), reader, range_of_cell(cell_id))

    async def close(self) -> None:
        self._db.close()
        await asyncio.to_thread(self._writer.close)

    async def writable(self) -> None:
        await self._write(
            lambda db: db.execute("INSERT INTO probe VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET writes = writes + 1")
        )

    async def _write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._writer.run(operation)
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

    def _one(self, kind: type[T], sql: str, *values: Any) -> T | None:
        found = self._rows(sql, *values)
        return decode(kind, found[0][0]) if found else None

    def _all(self, kind: type[T], sql: str, *values: Any) -> list[T]:
        return [decode(kind, row[0]) for row in self._rows(sql, *values)]

    def _page(
        self, kind: type[T], table: str, where: Mapping[str, Any], page: Page, order: str = "id DESC"
    ) -> tuple[list[T], int]:
        """Newest first unless told otherwise, of the rows for which every condition holds."""
        where = {**where, **page.bounds}
        conditions = " AND ".join(where) or "1"
        values = [value for value in where.values() if value is not None]
        count = f"SELECT count(*) FROM {table} WHERE {conditions}"
        total = self._rows(count, *values)[0][0] if page.counted else 0
        sql = f"SELECT body FROM {table} WHERE {conditions} ORDER BY {page.order or order} LIMIT ? OFFSET ?"
        return self._all(kind, sql, *values, page.size, (page.number - 1) * page.size), total

    def _draw(self, db: sqlite3.Connection, table: str) -> int:
        row = db.execute("SELECT last FROM sequences WHERE name = ?", (table,)).fetchone()
        number = self._ids.after(row[0] if row else None)
        rows.changed(db, "INSERT OR REPLACE INTO sequences VALUES (?, ?)", table, number)
        return number
