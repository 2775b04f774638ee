"""The single writer of a SQLite file: a thread that combines queued operations into one transaction.

All operations that queued up during a commit share the next one, because of the cost of an fsync. If an operation
raises, all are run again, each in its own savepoint, and only the failing one is undone; so an operation must be
repeatable. Callers learn of success after the commit. A caller that is cancelled while it waits does not know whether
its operation is stored. Operations are stored in the order of their arrival."""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

_BATCH = 500
"""Maximum of operations in a transaction, so that no caller waits long for a commit."""


@dataclass(slots=True)
class _Operation:
    run: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    is_statement: bool
    result: Any = None
    error: BaseException | None = None


class ClosedError(Exception):
    """The writer is closed and accepts no operations."""


class Writer:
    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db = db
        self._queue: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"writer of {name}", daemon=True)
        self._thread.start()

    async def run(self, operation: Callable[[sqlite3.Connection], T], *, is_statement: bool = False) -> T:
        """Run an operation in a transaction; return its result after the commit. Raises ClosedError after `close`.
        `is_statement`: at most one statement changes data, so no explicit transaction is needed."""
        if self._closed:
            raise ClosedError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Operation(operation, future, loop, is_statement))
        return await future

    def close(self) -> None:
        """Run the queued operations, close the connection, and wait until that is done."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            self._commit(batch)
            _report(batch)
        self._db.close()

    def _next_batch(self) -> list[_Operation]:
        first = self._queue.get()
        if first is None:
            return []
        batch = [first]
        while len(batch) < _BATCH:
            try:
                following = self._queue.get_nowait()
            except queue.Empty:
                break
            if following is None:
                self._queue.put(None)
                break
            batch.append(following)
        return batch

    def _commit(self, batch: list[_Operation]) -> None:
        if len(batch) == 1 and batch[0].is_statement:
            _run_alone(batch[0], self._db)
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            if not self._run_all(batch):
                self._db.execute("ROLLBACK")
                self._db.execute("BEGIN IMMEDIATE")
                for operation in batch:
                    self._run_one(operation)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            for operation in batch:
                operation.error = operation.error or error

    def _run_all(self, batch: list[_Operation]) -> bool:
        """Run a batch of operations in one transaction without savepoints. Returns False if an operation raised an
        error: the caller must then roll back and run each operation in a savepoint of its own."""
        try:
            for operation in batch:
                operation.result = operation.run(self._db)
        except BaseException as error:  # the second run, one by one, shows which operation failed
            if isinstance(error, sqlite3.Error) and not self._db.in_transaction:
                raise  # SQLite rolled back the whole transaction: nothing of the batch is stored
            return False
        return True

    def _run_one(self, operation: _Operation) -> None:
        self._db.execute("SAVEPOINT operation")
        try:
            operation.result = operation.run(self._db)
        except BaseException as error:  # passed on to the caller
            if isinstance(error, sqlite3.Error) and not self._db.in_transaction:
                raise  # SQLite rolled back the whole transaction: nothing of the batch is stored
            operation.error = error
            self._db.execute("ROLLBACK TO operation")
        self._db.execute("RELEASE operation")

    def _roll_back(self) -> None:
        # An error here appears again at the next BEGIN, which has a caller to report it to.
        with contextlib.suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


def _run_alone(operation: _Operation, db: sqlite3.Connection) -> None:
    try:
        operation.result = operation.run(db)
    except BaseException as error:  # noqa: BLE001 - passed on to the caller
        operation.error = error


def _report(batch: list[_Operation]) -> None:
    """Give the callers that wait for these operations their results or errors, each in its own event loop. If a
    caller's loop is closed, its result is dropped."""
    for loop in {operation.loop for operation in batch}:
        own = [operation for operation in batch if operation.loop is loop]
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, own)


def _resolve(batch: list[_Operation]) -> None:
    for operation in batch:
        if operation.future.done():
            continue
        if operation.error is not None:
            operation.future.set_exception(operation.error)
        else:
            operation.future.set_result(operation.result)
