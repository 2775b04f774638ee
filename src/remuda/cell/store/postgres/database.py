"""The PostgreSQL implementation of the interface `Database`. A transaction that failed because of another one (a
deadlock, a row that changed, an id that another process took) is run again, a few times. One whose connection was lost
after BEGIN is not, because it may have been committed. A read whose connection was lost is repeated once. BEGIN and the
first lock are sent in one message, because each message costs a round trip to the server."""

import asyncio
import hashlib
import random
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import asyncpg

from remuda.cell.errors import DataFolderError, StoreError
from remuda.cell.store.ports.database import Lock, Table
from remuda.cell.store.postgres.notifications import JobNotifications
from remuda.cell.store.postgres.pool import Connection, Pool
from remuda.cell.store.postgres.read_batching import ReadBatcher
from remuda.cell.store.postgres.schema import prepare
from remuda.cell.store.row_bodies import decode, decode_job, encode
from remuda.cell.store.sql import statements
from remuda.cell.store.sql.filters import Conditions, select_earlier_groups
from remuda.cell.store.sql.rows import SqlDatabase, SqlRows
from remuda.cell.values import Family, Job, Pipeline
from remuda.cell.values.changes import OtherChanges
from remuda.lib.backoff import Backoff
from remuda.model.job import OCCUPYING, JobId, PipelineId, ProjectId, RunnerId

T = TypeVar("T")

CONNECTIONS = 6
KEYED_CONNECTIONS = 5
"""Connections per process in the two pools. More would not make it faster, and a server allows a hundred by default."""
_KEYED = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "lock_timeout": "1s"}
"""Settings of the connections for statements that find rows by lists of keys: always use an index and a prepared plan.
Otherwise the server plans such a statement each time, which takes longer than finding the rows. Statements that may
wait long for a lock use the other connections."""
TRIES = 8
_WAIT_SECONDS = 20
"""Longest wait for a connection, a lock or an answer. After it the caller gets a StoreError."""
_PAUSE = Backoff(first_seconds=0.002, ceiling_seconds=0.2)
_LONGEST_TEXT = 255
"""Maximum number of characters of a text in a `Table.shortened` column."""

FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


class LostRaceError(Exception):
    """The transaction must be run again: a row changed after it was read, or the connection was lost before BEGIN."""


RACES = (
    LostRaceError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.UniqueViolationError,
)
AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""The server or the connection to it is gone."""


def where(url: str) -> str:
    """Return the name and address of a database for error messages, without the password."""
    parts = urlsplit(url)
    return f"the database {parts.path.lstrip('/') or 'of the user'} at {parts.netloc.rpartition('@')[2] or 'localhost'}"


def store_error(error: BaseException) -> StoreError:
    """Convert an error of PostgreSQL or asyncpg to a StoreError whose message advises the operator."""
    error = error.__cause__ or error
    if isinstance(error, asyncpg.SequenceGeneratorLimitExceededError):
        return StoreError("the cell's ids are used up; give the cell a further range")
    advice = "see the log of PostgreSQL"
    if isinstance(error, RACES):
        advice = "too many changes at once; try again"
    elif isinstance(error, (asyncpg.DiskFullError, asyncpg.InsufficientResourcesError)):
        advice = "free some space or connections where PostgreSQL runs"
    elif isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        advice = "the server is read-only; connect to the primary"
    elif isinstance(error, AWAY):
        advice = "check that PostgreSQL runs and can be reached"
    text = str(error) or type(error).__name__
    return StoreError(f"the store cannot do this now: {text}; {advice}")


def shorten(text: str) -> str:
    """Return a text as in columns of `Table.shortened`: NUL is replaced, a long text is cut and ends in its hash."""
    if len(text) > _LONGEST_TEXT:
        digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
        text = f"{text[: _LONGEST_TEXT - len(digest)]}{digest}"
    return without_nul(text)


def without_nul(text: str) -> str:
    """Replace NUL characters, which PostgreSQL cannot store in text, by the Unicode replacement character."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def storable(value: Any) -> Any:
    return without_nul(value) if isinstance(value, str) else value


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Connection]:
    """Open a connection that belongs to no pool and has no time limit for statements, and close it at the end of the
    `async with` block. Raises DataFolderError if connecting fails, or if the block raises a database error."""
    try:
        try:
            db = await asyncpg.connect(url, timeout=_WAIT_SECONDS)
        except ValueError as error:
            raise asyncpg.InterfaceError(str(error)) from None
        try:
            yield db
        finally:
            await db.close(timeout=_WAIT_SECONDS)
    except FAILURES as error:
        raise DataFolderError(
            f"cannot use {where(url)}: {str(error) or type(error).__name__}; check that PostgreSQL runs there and "
            "that --database is correct"
        ) from None


class _Borrowed:
    """A context manager for a connection from a pool. It closes a connection that was lost or timed out, or whose block
    was cancelled. It is a class, because `asynccontextmanager` would take as long as a whole SQL statement."""

    __slots__ = ("_db", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Connection:
        self._db = await self._pool.take()
        return self._db

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, (*AWAY, asyncio.CancelledError)):
            self._db.terminate()
        self._pool.give(self._db)


_LOCKS: Mapping[str, str] = {
    "paths": "SELECT pg_advisory_xact_lock(7236388302)",
    "tokens": "SELECT pg_advisory_xact_lock(7236388303)",
    "project": "SELECT FROM projects WHERE id = {number} FOR NO KEY UPDATE",
    "lfs": "SELECT pg_advisory_xact_lock(7236391, hashint8({number}))",
    "setting": "SELECT pg_advisory_xact_lock(7236389, hashtext({text}))",
}
"""A statement for each kind of `Lock`."""
_GROUPS_LOCK = 7_236_388
"""The first half of an advisory lock; the second is the project."""
TAKEN_GROUPS = (
    "SELECT resource_group FROM jobs WHERE project_id = $1 AND pipeline_id != $2"
    " AND resource_group = ANY($3::text[]) AND state = ANY($4::text[])"
    f" UNION {select_earlier_groups('key = ANY($3::text[])', '$1', '$2')}"
)
_BODY = r"regexp_replace(convert_from(body, 'UTF8'), '(\\\\)|\\u0000', '\1', 'g')::json"
"""The body as JSON without NUL characters (`\\u0000`), which PostgreSQL refuses to read. An escaped backslash is kept,
because a `u0000` after it is plain text."""


class PostgresDialect:
    """Implements `Dialect`: the SQL expressions of filters that are specific to PostgreSQL."""

    def field(self, name: str, kind: str = "bigint") -> str:
        return f"({_BODY} ->> '{name}')::{kind}"

    def has_one_of(self, name: str, numbers: Collection[int]) -> str:
        array = f"'{{{', '.join(str(int(number)) for number in sorted(numbers))}}}'::bigint[]"
        elements = f"json_array_elements_text({_BODY} -> '{name}')"
        return f"EXISTS (SELECT FROM {elements} AS element WHERE element::bigint = ANY({array}))"

    def is_empty_list(self, name: str) -> str:
        return f"coalesce(json_array_length({_BODY} -> '{name}'), 0) = 0"

    def has_all_texts(self, name: str, texts: Collection[str]) -> Conditions:
        stored = f"SELECT json_array_elements_text({_BODY} -> '{name}')"
        return {f"?::text[] <@ ARRAY({stored})": [without_nul(text) for text in texts]}

    def among(self, column: str, values: Collection[Any], kind: str = "text") -> Conditions:
        return {f"{column} = ANY(?::{kind}[])": list(values)}

    def contains(self, column: str) -> str:
        return f"strpos({column}, ?) > 0"

    def begins(self, column: str) -> str:
        return f"strpos({column}, ?) = 1"

    def lower_ascii(self, column: str) -> str:
        return f'lower({column} COLLATE "C")'

    def text(self, text: str) -> str:
        return shorten(text)

    def without_index(self, column: str) -> str:
        return column


class _Rows(SqlRows):
    dialect = PostgresDialect()
    limits_parts = True

    def row(self, table: Table[T], value: T) -> dict[str, Any]:
        row = table.row(value)
        for name in table.shortened:
            row[name] = row[name] and shorten(row[name])
        return row


class PostgresTransaction(_Rows):
    def __init__(self, db: Connection) -> None:
        self.db = db

    async def fetch(self, sql: str, *values: Any) -> Sequence[Any]:
        return await self.db.fetch(sql, *map(storable, values))

    async def execute(self, sql: str, *values: Any) -> int:
        return row_count(await self.db.execute(sql, *map(storable, values)))

    async def execute_many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        await self.db.executemany(sql, [tuple(map(storable, row)) for row in values])

    async def find_locked(self, table: Table[T], **columns: Any) -> T | None:
        texts, values = self._where(table, columns)
        sql = f"{statements.select(table, texts, (), has_limit=False)} FOR NO KEY UPDATE"
        rows = await self.fetch(sql, *values)
        return table.read(rows[0]) if rows else None

    async def draw_id(self, table: Table[Any]) -> int:
        number: int = await self.db.fetchval(f"SELECT nextval('{table.name}_id')")
        return number

    async def draw_job_ids(self, count: int) -> Sequence[JobId]:
        if not count:
            return ()
        rows = await self.db.fetch("SELECT nextval('jobs_id') FROM generate_series(1, $1)", count)
        return [JobId(row[0]) for row in rows]

    async def draw_pipeline(self, project_id: ProjectId) -> tuple[int, PipelineId] | None:
        row = await self.db.fetchrow(
            "SELECT coalesce(max(iid), 0) + 1, nextval('pipelines_id'), (SELECT 1 FROM projects WHERE id = $1)"
            " FROM pipelines WHERE project_id = $1",
            project_id,
        )
        return (row[0], PipelineId(row[1])) if row and row[2] else None

    async def read_family(self, pipeline: Pipeline) -> Family:
        sql = "SELECT body FROM jobs WHERE pipeline_id = $1 AND retried = 0 ORDER BY id"
        jobs = tuple(decode_job(row[0]) for row in await self.db.fetch(sql, pipeline.id))
        return Family(pipeline=pipeline, jobs=jobs, taken=await self.find_taken_groups(pipeline, jobs))

    async def find_taken_groups(self, pipeline: Pipeline, jobs: Sequence[Job]) -> frozenset[str]:
        """Return those resource groups of `jobs` that a job of another pipeline has. Other transactions that call this
        for the same project wait until this one ends, so no two of them give away the same group."""
        groups = groups_by_column(jobs)
        if not groups:
            return frozenset()
        await self.db.execute("SELECT pg_advisory_xact_lock($1, hashint8($2))", _GROUPS_LOCK, pipeline.project_id)
        rows = await self.db.fetch(TAKEN_GROUPS, *group_query_values(pipeline, groups))
        return frozenset(groups[row[0]] for row in rows)

    async def update_job(self, job: Job) -> None:
        sql = "UPDATE jobs SET state = $2, retried = $3, runner_id = $4, request_id = $5, body = $6 WHERE id = $1"
        request_id = job.request_id and shorten(job.request_id)
        values = (job.id, job.state.value, int(job.retried), job.runner_id, request_id, encode(job))
        await self.db.execute(sql, *values)


def groups_by_column(jobs: Iterable[Job]) -> dict[str, str]:
    """Return the resource groups of jobs, by their (possibly shortened) text in the database column."""
    return {shorten(job.resource_group): job.resource_group for job in jobs if job.resource_group}


def group_query_values(pipeline: Pipeline, groups: Collection[str]) -> tuple[Any, ...]:
    return pipeline.project_id, pipeline.id, list(groups), [state.value for state in OCCUPYING]


class PostgresDatabase(_Rows, SqlDatabase):
    def __init__(self, pool: Pool, keyed: Pool, notifications: JobNotifications) -> None:
        self._pool = pool
        self._keyed_pool = keyed
        self.notifications = notifications
        self._batches: dict[str, ReadBatcher[Any, Any]] = {}
        self.frequent: dict[str, int] = {}
        """Frequent statements that find rows by key, each with the number of its parameters, which are lists."""

    @classmethod
    async def open(cls, url: str, cell_id: int) -> Self:
        """Connect, and create or migrate the tables. Raises DataFolderError if the database cannot be used."""
        settings = {
            "application_name": f"remuda cell {cell_id}",
            "lock_timeout": f"{_WAIT_SECONDS}s",
            "idle_in_transaction_session_timeout": f"{3 * _WAIT_SECONDS}s",
            "jit": "off",
        }
        async with connect(url) as db:
            await prepare(db, where(url), cell_id)

        async def connect_with(more: Mapping[str, str]) -> Connection:
            return await asyncpg.connect(
                url, timeout=_WAIT_SECONDS, command_timeout=_WAIT_SECONDS, server_settings={**settings, **more}
            )

        return cls(
            Pool(partial(connect_with, {}), most=CONNECTIONS, wait_seconds=_WAIT_SECONDS),
            Pool(partial(connect_with, _KEYED), most=KEYED_CONNECTIONS, wait_seconds=_WAIT_SECONDS),
            JobNotifications(url),
        )

    async def close(self) -> None:
        for pool in (self._pool, self._keyed_pool):
            with suppress(*FAILURES):
                await pool.close()

    async def warm_up(self) -> None:
        """Run the frequent statements once on each connection that serves lookups by key, so that PostgreSQL has
        planned them before the first request. Ignores errors."""

        async def plan(db: Connection) -> None:
            for sql, lists in self.frequent.items():
                await db.fetch(sql, *([] for _ in range(lists)))

        with suppress(*FAILURES, ExceptionGroup):  # then the statements are planned at their first use
            await self._keyed_pool.warm_up(plan)

    def watch_changes(self) -> AsyncGenerator[OtherChanges, None]:
        return self.notifications.receive()

    def announce_runner(self, runner_id: RunnerId) -> None:
        self.notifications.send_runner(runner_id)

    async def check_writable(self) -> None:
        await self.execute("INSERT INTO probe VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET writes = probe.writes + 1")

    def borrow(self, *, keyed: bool = False) -> _Borrowed:
        """Take a connection from a pool for a block. `keyed`: from the pool for statements that find rows by key."""
        return _Borrowed(self._keyed_pool if keyed else self._pool)

    @asynccontextmanager
    async def begin(self, lock: str = "", *, keyed: bool = False) -> AsyncIterator[Connection]:
        """Run the block in a transaction, which is rolled back if the block raises. `lock` is SQL that takes locks,
        sent together with BEGIN. `keyed`: use the pool for statements that find rows by key."""
        async with self.borrow(keyed=keyed) as db:
            try:
                try:
                    await db.execute(f"BEGIN; {lock}")
                except AWAY as error:
                    db.terminate()
                    if isinstance(error, TimeoutError):  # the caller has waited long enough
                        raise
                    # The connection had been lost unnoticed, so nothing of this transaction was done.
                    raise LostRaceError from error
                yield db
                await db.execute("COMMIT")
            except BaseException:
                if not db.is_closed() and db.is_in_transaction():
                    try:
                        await db.execute("ROLLBACK")
                    except BaseException:
                        db.terminate()
                        raise
                raise

    async def change(
        self, work: Callable[[PostgresTransaction], Coroutine[Any, Any, T]], lock: Lock | None = None
    ) -> T:
        return await self.transact(lambda db: work(PostgresTransaction(db)), _statement(lock) if lock else "")

    async def transact(self, work: Callable[[Connection], Awaitable[T]], lock: str = "") -> T:
        """Run `work` in a transaction, up to `TRIES` times if it fails with one of `RACES`, such as a conflict with
        another transaction. `lock` is SQL that takes locks first. Raises StoreError on failure."""
        for failures in count(1):
            try:
                async with self.begin(lock) as db:
                    return await work(db)
            except RACES as error:
                if failures == TRIES:
                    raise store_error(error) from error
            except FAILURES as error:
                raise store_error(error) from error
            await asyncio.sleep(_PAUSE.delay(failures, jitter=random.random()))
        raise AssertionError("the last try has raised")

    async def execute(self, sql: str, *values: Any) -> int:
        try:
            async with self.borrow() as db:
                return row_count(await db.execute(sql, *map(storable, values)))
        except FAILURES as error:
            raise store_error(error) from error

    async def execute_many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        await self.transact(lambda db: PostgresTransaction(db).execute_many(sql, values))

    async def fetch(self, sql: str, *values: Any, keyed: bool = False) -> list[asyncpg.Record]:
        try:
            try:
                async with self.borrow(keyed=keyed) as db:
                    return await db.fetch(sql, *map(storable, values))
            except AWAY:
                async with self.borrow(keyed=keyed) as db:
                    return await db.fetch(sql, *map(storable, values))
        except FAILURES as error:
            raise store_error(error) from error

    async def find(self, table: Table[T], **columns: Any) -> T | None:
        if len(columns) > 1 or not table.has_body or not table.fields.isdisjoint(columns):
            return await super().find(table, **columns)
        ((column, value),) = columns.items()
        return await self.load(table.kind, select_by_key(table.name, column, type(value)), value)

    async def load(self, kind: type[T], sql: str, key: Any) -> T | None:
        body = await self.load_body(sql, key)
        return decode(kind, body) if body else None

    async def load_body(self, sql: str, key: Any) -> bytes | None:
        """Return the column `body` (the encoded value) of the row with this key, or None. `sql` must accept a list of
        keys: concurrent calls with the same `sql` are answered by one statement."""
        body: bytes | None = await self.fetch_together(sql, partial(self._fetch_bodies, sql), storable(key))
        return body

    async def _fetch_bodies(self, sql: str, keys: Sequence[Any]) -> Mapping[Any, bytes]:
        return {row[0]: row[1] for row in await self.fetch(sql, keys, keyed=True)}

    async def fetch_together(
        self, kind: str, fetch: Callable[[Sequence[Any]], Awaitable[Mapping[Any, Any]]], key: Any
    ) -> Any:
        """Return the value for `key`, or None. Concurrent calls of one `kind` share one call of `fetch`."""
        batch = self._batches.get(kind)
        if batch is None:
            batch = self._batches[kind] = ReadBatcher(fetch)
        return await batch.get(key)


def select_by_key(table: str, column: str, key: type[Any]) -> str:
    kind = "text" if issubclass(key, str) else "bigint"
    return f"SELECT {column}, body FROM {table} WHERE {column} = ANY($1::{kind}[])"


def _statement(lock: Lock) -> str:
    quoted = "'" + str(lock.of).replace("'", "''") + "'"
    return _LOCKS[lock.kind].format(number=lock.of, text=quoted)


def row_count(tag: str) -> int:
    """Return the number of changed rows from a status text of the server such as `UPDATE 3`."""
    count = tag.rpartition(" ")[2]
    return int(count) if count.isdigit() else 0
