"""The SQLite implementation of the store's interface `Database`. Writes go through one writer thread and are on disk
when they return. Fast reads use a read-only connection in the event loop, because reading a row by key takes less time
than switching to a thread; they see every write that has returned. Only one process of a cell at a time uses the file;
the lock of the data folder ensures that."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from remuda.cell.errors import DataFolderError, StoreError
from remuda.cell.store.ports.database import Lock, Table
from remuda.cell.store.ports.tables import JOBS, PIPELINES
from remuda.cell.store.row_bodies import decode, decode_job, encode
from remuda.cell.store.sql.filters import Conditions, select_earlier_groups
from remuda.cell.store.sql.rows import SqlDatabase, SqlRows
from remuda.cell.store.sqlite.schema import prepare
from remuda.cell.values import Family, Job, Pipeline
from remuda.cell.values.changes import OtherChanges
from remuda.lib.files import is_sync_enabled, make_private
from remuda.lib.ids import IdRange, IdsExhaustedError, range_of_cell
from remuda.lib.sqlite_writer import ClosedError, Writer
from remuda.model.job import OCCUPYING, JobId, PipelineId, ProjectId, RunnerId

T = TypeVar("T")

_BUSY_SECONDS = 5.0


def store_error(error: sqlite3.Error) -> StoreError:
    """Convert an error of SQLite to a StoreError whose message advises the operator."""
    advice = {
        "SQLITE_FULL": "free some space where the data folder is",
        "SQLITE_READONLY": "make the data folder writable for this user",
        "SQLITE_BUSY": "another process uses the database; stop it",
        "SQLITE_LOCKED": "another process uses the database; stop it",
        "SQLITE_CORRUPT": "the file is damaged; restore it from a backup",
        "SQLITE_NOTADB": "restore the file from a backup",
    }
    name = str(getattr(error, "sqlite_errorname", ""))
    hint = next((text for start, text in advice.items() if name.startswith(start)), "check the data folder's disk")
    return StoreError(f"the store cannot do this now: {error}; {hint}")


def json_list(values: Collection[Any]) -> str:
    """Return these values as JSON, for the parameter in the SQL `IN (SELECT value FROM json_each(?))`."""
    return encode(list(values)).decode()


class SqliteDialect:
    """Implements `Dialect`: the SQL expressions of filters that are specific to SQLite."""

    def field(self, name: str, kind: str = "bigint") -> str:
        return f"json_extract(CAST(body AS TEXT), '$.{name}')"

    def has_one_of(self, name: str, numbers: Collection[int]) -> str:
        values = ", ".join(str(int(number)) for number in sorted(numbers))
        return f"EXISTS (SELECT 1 FROM json_each(CAST(body AS TEXT), '$.{name}') WHERE value IN ({values}))"

    def is_empty_list(self, name: str) -> str:
        return f"NOT EXISTS (SELECT 1 FROM json_each(CAST(body AS TEXT), '$.{name}'))"

    def has_all_texts(self, name: str, texts: Collection[str]) -> Conditions:
        stored = f"SELECT value FROM json_each(CAST(body AS TEXT), '$.{name}')"
        return {f"NOT EXISTS (SELECT 1 FROM json_each(?) WHERE value NOT IN ({stored}))": json_list(texts)}

    def among(self, column: str, values: Collection[Any], kind: str = "text") -> Conditions:
        return {f"{column} IN (SELECT value FROM json_each(?))": json_list(values)}

    def contains(self, column: str) -> str:
        return f"instr({column}, ?) > 0"

    def begins(self, column: str) -> str:
        return f"instr({column}, ?) = 1"

    def lower_ascii(self, column: str) -> str:
        return f"lower({column})"

    def text(self, text: str) -> str:
        return text

    def without_index(self, column: str) -> str:
        return f"+{column}"


@lru_cache(maxsize=1024)
def with_question_marks(sql: str) -> str:
    """Convert PostgreSQL's parameters ($1) to those of SQLite (?1)."""
    return re.sub(r"\$(\d)", r"?\1", sql)


class _Rows(SqlRows):
    dialect = SqliteDialect()
    limits_parts = False

    def row(self, table: Table[T], value: T) -> dict[str, Any]:
        row = table.row(value)
        return {name: row[name] for name in row if name not in table.generated} if table.generated else row


class SqliteTransaction(_Rows):
    """A transaction. Its methods are coroutines, as the interface requires, but they never wait for anything: the
    writer thread runs a transaction without interruption."""

    def __init__(self, db: sqlite3.Connection, ids: IdRange) -> None:
        self.db = db
        self._ids = ids

    async def fetch(self, sql: str, *values: Any) -> Sequence[Any]:
        return self.db.execute(with_question_marks(sql), values).fetchall()

    async def execute(self, sql: str, *values: Any) -> int:
        return self.db.execute(with_question_marks(sql), values).rowcount

    async def execute_many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        self.db.executemany(with_question_marks(sql), values)

    async def find_locked(self, table: Table[T], **columns: Any) -> T | None:
        return await self.find(table, **columns)

    async def draw_id(self, table: Table[Any]) -> int:
        return (await self._draw(table, 1))[0]

    async def draw_job_ids(self, count: int) -> Sequence[JobId]:
        return [JobId(number) for number in await self._draw(JOBS, count)]

    async def _draw(self, table: Table[Any], count: int) -> list[int]:
        row = self.db.execute("SELECT last FROM sequences WHERE name = ?", (table.name,)).fetchone()
        last = row[0] if row else None
        numbers = [last := self._ids.after(last) for _ in range(count)]
        if numbers:
            self.db.execute("INSERT OR REPLACE INTO sequences VALUES (?, ?)", (table.name, last))
        return numbers

    async def draw_pipeline(self, project_id: ProjectId) -> tuple[int, PipelineId] | None:
        iid = "SELECT coalesce(max(iid), 0) + 1 FROM pipelines WHERE project_id = ?1"
        row = self.db.execute(f"SELECT ({iid}) FROM projects WHERE id = ?1", (project_id,)).fetchone()
        return (row[0], PipelineId(await self.draw_id(PIPELINES))) if row else None

    async def read_family(self, pipeline: Pipeline) -> Family:
        return read_family(self.db, pipeline)

    async def find_taken_groups(self, pipeline: Pipeline, jobs: Sequence[Job]) -> frozenset[str]:
        return _read_taken_groups(self.db, pipeline, jobs)

    async def update_job(self, job: Job) -> None:
        update_job(self.db, job)


def read_family(db: sqlite3.Connection, pipeline: Pipeline) -> Family:
    # As one row: each further row is another call of SQLite, during which Python switches threads.
    # No body contains a line break, because it is JSON.
    sql = (
        "SELECT CAST(group_concat(body, char(10)) AS BLOB)"
        " FROM (SELECT body FROM jobs WHERE pipeline_id = ? AND retried = 0 ORDER BY id)"
    )
    bodies: bytes | None = db.execute(sql, (pipeline.id,)).fetchone()[0]
    jobs = tuple(map(decode_job, bodies.split(b"\n"))) if bodies else ()
    return Family(pipeline=pipeline, jobs=jobs, taken=_read_taken_groups(db, pipeline, jobs))


def _read_taken_groups(db: sqlite3.Connection, pipeline: Pipeline, jobs: Sequence[Job]) -> frozenset[str]:
    groups = {job.resource_group for job in jobs if job.resource_group}
    if not groups:
        return frozenset()
    sql = (
        "SELECT resource_group FROM jobs WHERE project_id = ?1 AND pipeline_id != ?2"
        " AND resource_group IN (SELECT value FROM json_each(?3)) AND state IN (SELECT value FROM json_each(?4))"
        f" UNION {select_earlier_groups('key IN (SELECT value FROM json_each(?3))', '?1', '?2')}"
    )
    values = (pipeline.project_id, pipeline.id, json_list(groups), json_list(OCCUPYING))
    return frozenset(row[0] for row in db.execute(sql, values))


def update_job(db: sqlite3.Connection, job: Job) -> None:
    sql = "UPDATE jobs SET state = ?, retried = ?, runner_id = ?, request_id = ?, body = ? WHERE id = ?"
    db.execute(sql, (job.state, job.retried, job.runner_id, job.request_id, encode(job), job.id))


class SqliteDatabase(_Rows, SqlDatabase):
    def __init__(self, writer: Writer, path: Path, ids: IdRange) -> None:
        self.writer = writer
        self.reader = _open_reader(path)
        self._path = path
        self._ids = ids

    @classmethod
    def open(cls, path: Path, cell_id: int) -> Self:
        """Open or create the file, and create or migrate its tables. Raises DataFolderError if it cannot be used."""
        try:
            _make_files_private(path)
            db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                synchronous = "FULL" if is_sync_enabled() else "OFF"
                for pragma in (f"synchronous = {synchronous}", "foreign_keys = ON"):
                    db.execute(f"PRAGMA {pragma}")
                prepare(db, str(path), cell_id)
                # Last, because it changes the file, which may be another program's.
                db.execute("PRAGMA journal_mode = WAL")
                return cls(Writer(db, path.name), path, range_of_cell(cell_id))
            except BaseException:
                db.close()
                raise
        except sqlite3.Error as error:
            raise DataFolderError(f"cannot open {path}: {store_error(error)}") from error

    async def close(self) -> None:
        self.reader.close()
        await asyncio.to_thread(self.writer.close)

    async def warm_up(self) -> None:
        return

    async def check_writable(self) -> None:
        await self.execute("INSERT INTO probe VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET writes = writes + 1")

    async def watch_changes(self) -> AsyncGenerator[OtherChanges, None]:
        """Yield nothing and end at once: no other process can change this store."""
        changes: Sequence[OtherChanges] = ()
        for change in changes:
            yield change

    def announce_runner(self, runner_id: RunnerId) -> None:
        """Do nothing: no other process can use this store."""

    async def change(self, work: Callable[[SqliteTransaction], Coroutine[Any, Any, T]], lock: Lock | None = None) -> T:
        return await self.write(lambda db: _run_to_end(work(SqliteTransaction(db, self._ids))))

    async def write(self, operation: Callable[[sqlite3.Connection], T], *, is_statement: bool = False) -> T:
        """Run an operation on the writer thread and return its result after the commit. `is_statement`: it changes data
        with only one statement, so it may run without a transaction. Raises StoreError if the write fails."""
        try:
            return await self.writer.run(operation, is_statement=is_statement)
        except IdsExhaustedError as error:
            raise StoreError(f"{error}; give the cell a further range") from error
        except ClosedError:
            raise StoreError("the store is closed; the cell stops") from None
        except sqlite3.Error as error:
            raise store_error(error) from error

    async def fetch(self, sql: str, *values: Any) -> Sequence[Any]:
        return self.read(with_question_marks(sql), *values)

    async def execute(self, sql: str, *values: Any) -> int:
        text = with_question_marks(sql)
        return await self.write(lambda db: db.execute(text, values).rowcount)

    async def execute_many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        text = with_question_marks(sql)
        await self.write(lambda db: db.executemany(text, values))

    def read(self, sql: str, *values: Any) -> list[Any]:
        """Run a query in the event loop and return its rows. Only for fast queries, because it blocks."""
        try:
            return self.reader.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise store_error(error) from error

    async def read_in_thread(self, sql: str, *values: Any) -> list[Any]:
        """Run a query that may take long, in a thread with its own connection, and return its rows."""

        def read() -> list[Any]:
            with closing(_open_reader(self._path)) as db:
                return db.execute(sql, values).fetchall()

        try:
            return await asyncio.to_thread(read)
        except sqlite3.Error as error:
            raise store_error(error) from error

    def load(self, kind: type[T], sql: str, *values: Any) -> T | None:
        rows = self.read(sql, *values)
        return decode(kind, rows[0][0]) if rows else None

    def load_all(self, kind: type[T], sql: str, *values: Any) -> list[T]:
        return [decode(kind, row[0]) for row in self.read(sql, *values)]


def _run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, without an event loop, and return its result."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AssertionError("a transaction waited for something other than its rows")


def _open_reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )


def _make_files_private(path: Path) -> None:
    """Let only this user read the database file and the `-wal` and `-shm` files that SQLite creates beside it."""
    with suppress(OSError):  # SQLite reports it, too
        make_private(path)
        for name in (f"{path.name}-wal", f"{path.name}-shm"):
            if (beside := path.with_name(name)).exists():
                make_private(beside)
