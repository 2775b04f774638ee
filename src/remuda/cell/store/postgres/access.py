"""A PostgreSQL database as the store's parts use it: a pool of connections, transactions, reads, ids, and what fails.

Decided here: how failures of the database are told, and what is tried again. A transaction that lost a race (a
deadlock, a row that changed under it, an id that somebody took) is run anew, a few times; one whose connection was lost
is not, because nobody knows whether it was stored. A read is simply asked again. Connections that are gone are replaced
when they are next needed, so a database that was away is used again as soon as it is back.

Connections come from `postgres_pool`; statements are prepared once per connection (asyncpg keeps them). A transaction
begins and takes its first lock in one message; a further one would cost as much as most of what is done in it.
"""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import asyncpg

from remuda.cell.errors import DataFolderError, StoreError
from remuda.cell.store.postgres.notifications import Hints
from remuda.cell.store.postgres.pool import Connection, Pool
from remuda.cell.store.postgres.read_batching import Gathered
from remuda.cell.store.postgres.schema import prepare
from remuda.cell.store.row_bodies import decode
from remuda.cell.values import Page
from remuda.lib.backoff import Backoff

T = TypeVar("T")

CONNECTIONS = 6
KEYED_CONNECTIONS = 5
"""So many per process: more of them do no more work, and a server has a hundred by default."""
_KEYED = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "lock_timeout": "1s"}
"""For what is done by key, thousands of times: by an index, whatever the keys are. The server would plan lists of keys
anew each time, which takes longer than to find them. Whoever has to wait for a lock for long waits elsewhere."""
TRIES = 8
_WAIT_SECONDS = 20
"""For a connection, a lock or an answer; then the caller hears that the store is not usable."""
_PAUSE = Backoff(first_seconds=0.002, ceiling_seconds=0.2)
_LONGEST_TEXT = 255
"""What can be in an index has an end."""

FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


class LostRaceError(Exception):
    """What was read is not what is stored any more."""


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
    """Which database it is, without the password."""
    parts = urlsplit(url)
    return f"the database {parts.path.lstrip('/') or 'of the user'} at {parts.netloc.rpartition('@')[2] or 'localhost'}"


def store_error(error: BaseException) -> StoreError:
    """What an operator should know about a failing database."""
    error = error.__cause__ or error
    if isinstance(error, asyncpg.SequenceGeneratorLimitExceededError):
        return StoreError("the cell's ids are used up; give the cell a further range")
    advice = "see the log of PostgreSQL"
    if isinstance(error, RACES):
        advice = "too many changes at once; try again"
    elif isinstance(error, (asyncpg.DiskFullError, asyncpg.InsufficientResourcesError)):
        advice = "free some space or connections where PostgreSQL runs"
    elif isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        advice = "it takes no changes; connect to the primary"
    elif isinstance(error, AWAY):
        advice = "check that PostgreSQL runs and can be reached"
    text = str(error) or type(error).__name__
    return StoreError(f"the store cannot do this now: {text}; {advice}")


def plain(text: str) -> str:
    """Text for a column that is asked by: what no index takes, or no text in PostgreSQL can hold, has a stand-in."""
    if len(text) > _LONGEST_TEXT:
        digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
        text = f"{text[: _LONGEST_TEXT - len(digest)]}{digest}"
    return without_nul(text)


def without_nul(text: str) -> str:
    """Text as PostgreSQL can hold it; whoever asks for a text with that character finds nothing."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _held(value: Any) -> Any:
    return without_nul(value) if isinstance(value, str) else value


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """A connection of its own, without a limit to how long something takes; DataFolderError when anything fails."""
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
            f"cannot use {where(url)}: {str(error) or type(error).__name__}; check that PostgreSQL runs there, and "
            "--database"
        ) from None


class _Lent:
    """A connection for a while. One that is lost, or in the middle of something, does not come back to the others.

    A class, because what `asynccontextmanager` makes of a function took as long as some statements.
    """

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


class PostgresDatabase:
    """One database: its connections, and the ids it gives out."""

    def __init__(self, pool: Pool, keyed: Pool, hints: Hints) -> None:
        self._pool = pool
        self._keyed_pool = keyed
        self._hints = hints
        self._gathered: dict[str, Gathered[Any, Any]] = {}

    @classmethod
    async def open(cls, url: str, cell_id: int) -> Self:
        """Connect, and make or migrate the tables; DataFolderError when the database cannot be used."""
        settings = {
            "application_name": f"remuda cell {cell_id}",
            "lock_timeout": f"{_WAIT_SECONDS}s",
            "idle_in_transaction_session_timeout": f"{3 * _WAIT_SECONDS}s",
            "jit": "off",
        }
        async with connected(url) as db:
            await prepare(db, where(url), cell_id)

        async def connect(more: Mapping[str, str]) -> Connection:
            return await asyncpg.connect(
                url, timeout=_WAIT_SECONDS, command_timeout=_WAIT_SECONDS, server_settings={**settings, **more}
            )

        return cls(
            Pool(partial(connect, {}), most=CONNECTIONS, wait_seconds=_WAIT_SECONDS),
            Pool(partial(connect, _KEYED), most=KEYED_CONNECTIONS, wait_seconds=_WAIT_SECONDS),
            Hints(url),
        )

    async def close(self) -> None:
        for pool in (self._pool, self._keyed_pool):
            with suppress(*FAILURES):
                await pool.close()

    async def check_writable(self) -> None:
        await self._run("INSERT INTO probe VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET writes = probe.writes + 1")

    def _connection(self, *, keyed: bool = False) -> _Lent:
        """One of the connections; `keyed` is for statements that look for nothing but keys."""
        return _Lent(self._keyed_pool if keyed else self._pool)

    @asynccontextmanager
    async def _begun(self, lock: str = "", *, keyed: bool = False) -> AsyncIterator[Connection]:
        """A transaction; `lock` is a statement (without values) to begin it with."""
        async with self._connection(keyed=keyed) as db:
            try:
                try:
                    await db.execute(f"BEGIN; {lock}")
                except AWAY as error:
                    db.terminate()
                    # A connection of before the server was away, which nobody had noticed yet: nothing is done.
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

    async def _change(self, work: Callable[[Connection], Awaitable[T]], lock: str = "") -> T:
        """Do something in a transaction, and anew when it lost a race."""
        for failures in count(1):
            try:
                async with self._begun(lock) as db:
                    return await work(db)
            except RACES as error:
                if failures == TRIES:
                    raise store_error(error) from error
            except FAILURES as error:
                raise store_error(error) from error
            await asyncio.sleep(_PAUSE.delay(failures, jitter=random.random()))
        raise AssertionError("the last try has raised")

    async def _run(self, sql: str, *values: Any) -> int:
        """One statement as a transaction of its own; how many rows it changed."""
        try:
            async with self._connection() as db:
                return changed(await db.execute(sql, *map(_held, values)))
        except FAILURES as error:
            raise store_error(error) from error

    async def _rows(self, sql: str, *values: Any, keyed: bool = False) -> list[asyncpg.Record]:
        try:
            try:
                async with self._connection(keyed=keyed) as db:
                    return await db.fetch(sql, *map(_held, values))
            except AWAY:
                async with self._connection(keyed=keyed) as db:
                    return await db.fetch(sql, *map(_held, values))
        except FAILURES as error:
            raise store_error(error) from error

    async def _one(self, kind: type[T], sql: str, *values: Any) -> T | None:
        found = await self._rows(sql, *values)
        return decode(kind, found[0][0]) if found else None

    async def _body(self, sql: str, key: Any) -> bytes | None:
        """The body behind a key; `sql` finds keys and bodies for a list of keys. Asked together with others."""
        found: bytes | None = await self._asked_with_others(sql, partial(self._bodies, sql), _held(key))
        return found

    async def _bodies(self, sql: str, keys: Sequence[Any]) -> Mapping[Any, bytes]:
        return {row[0]: row[1] for row in await self._rows(sql, keys, keyed=True)}

    async def _asked_with_others(
        self, kind: str, fetch: Callable[[Sequence[Any]], Awaitable[Mapping[Any, Any]]], key: Any
    ) -> Any:
        """What `fetch` finds for a key; those who ask for the same kind at the same time ask together."""
        gathered = self._gathered.get(kind)
        if gathered is None:
            gathered = self._gathered[kind] = Gathered(fetch)
        return await gathered.get(key)

    async def _keyed(self, kind: type[T], sql: str, key: Any) -> T | None:
        body = await self._body(sql, key)
        return decode(kind, body) if body else None

    async def _all(self, kind: type[T], sql: str, *values: Any) -> list[T]:
        return [decode(kind, row[0]) for row in await self._rows(sql, *values)]

    async def _page(
        self,
        kind: type[T],
        table: str,
        where: Mapping[str, Any],
        page: Page,
        order: str = "id DESC",
        states: Sequence[str] = (),
    ) -> tuple[list[T], int]:
        """Newest first unless told otherwise, of the rows for which every condition holds: `?` is its value.

        Those of several `states` are merged: each state has its rows in order in an index, and only as many as are
        wanted are looked at.
        """
        values: list[Any] = []
        of = []
        where = {**where, **page.bounds}
        for conditions in [{**where, "state = ?": state} for state in dict.fromkeys(states)] or [where]:
            asked = []
            for condition, value in conditions.items():
                if value is not None:
                    values.append(value)
                    condition = condition.replace("?", f"${len(values)}")
                asked.append(condition)
            of.append(f"FROM {table} WHERE {' AND '.join(asked) or 'TRUE'}")
        count = " UNION ALL ".join(f"SELECT count(*) {part}" for part in of)
        total = sum(row[0] for row in await self._rows(count, *values)) if page.counted else 0
        order, skipped = page.order or order, (page.number - 1) * page.size
        if len(of) == 1:
            sql = f"SELECT body {of[0]}"
        else:
            # Without a limit of its own each part would be read whole.
            each = f"ORDER BY {order} LIMIT {skipped + page.size}"
            sql = " UNION ALL ".join(f"(SELECT body, id {part} {each})" for part in of)
        sql = f"{sql} ORDER BY {order} LIMIT ${len(values) + 1} OFFSET ${len(values) + 2}"
        return await self._all(kind, sql, *values, page.size, skipped), total


def changed(tag: str) -> int:
    """How many rows a statement changed, by what the server said of it (`UPDATE 3`)."""
    count = tag.rpartition(" ")[2]
    return int(count) if count.isdigit() else 0


async def draw(db: Connection, table: str, many: int = 1) -> Sequence[int]:
    """New ids, in their order; none of them is ever given again, even if the transaction comes to nothing."""
    found = await db.fetch(f"SELECT nextval('{table}_id') FROM generate_series(1, $1)", many)
    return [row[0] for row in found]
