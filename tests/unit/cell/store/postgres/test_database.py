"""Which failures of a transaction are repeated, with a fake of the connection."""

from typing import Any, cast

import asyncpg
import pytest

from remuda.cell.errors import StoreError
from remuda.cell.store.postgres import database
from remuda.cell.store.postgres.notifications import JobNotifications
from remuda.cell.store.postgres.pool import Pool


class FakeConnection:
    def __init__(self, begin_error: Exception | None) -> None:
        self.begin_error = begin_error
        self.closed = False

    async def execute(self, sql: str) -> str:
        if sql.startswith("BEGIN") and self.begin_error is not None:
            raise self.begin_error
        return sql

    def is_closed(self) -> bool:
        return self.closed

    def is_in_transaction(self) -> bool:
        return False

    def terminate(self) -> None:
        self.closed = True


def open_database(connections: list[FakeConnection]) -> database.PostgresDatabase:
    """Return a database whose pool hands out these connections in order, each after the one before it was closed."""
    remaining = iter(connections)

    async def connect() -> Any:
        return next(remaining)

    pool = Pool(connect, most=1, wait_seconds=1)
    return database.PostgresDatabase(pool, pool, cast("JobNotifications", None))


async def work(_: object) -> str:
    return "done"


async def test_a_transaction_whose_connection_was_lost_before_it_began_is_repeated() -> None:
    connections = [FakeConnection(asyncpg.ConnectionDoesNotExistError("lost")), FakeConnection(None)]
    assert await open_database(connections).transact(work) == "done"
    assert connections[0].closed


async def test_a_transaction_whose_begin_timed_out_is_not_repeated() -> None:
    connections = [FakeConnection(TimeoutError()), FakeConnection(None)]
    with pytest.raises(StoreError, match="TimeoutError; check that PostgreSQL runs"):
        await open_database(connections).transact(work)
    assert [connection.closed for connection in connections] == [True, False]
