"""The one writer of a SQLite file: a thread that puts many waiting operations into one transaction.

An fsync costs the same for one operation as for a hundred, so whatever has queued up while the last commit was on its
way shares the next. An operation that raises undoes itself and nothing else: then all are run once more, each with a
savepoint of its own, so an operation must not mind being run twice. Callers hear of success only after the commit, and
when the commit fails all of them hear of that. One that is a single statement needs no transaction around it when it is
alone: each statement costs the thread the way out of Python and back. The cell's store and the manager's journal write
through it; what is written, and what an error means, is theirs to say.

Operations are stored in the order in which they came. A caller that is cancelled while it waits does not know whether
its operation was stored: it may yet be.
"""

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
"""Operations in one transaction at most, so that nobody waits long for a commit."""


@dataclass(slots=True)
class _Operation:
    run: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    is_statement: bool
    result: Any = None
    error: BaseException | None = None


class ClosedError(Exception):
    """The writer takes nothing more."""


class Writer:
    """Runs operations on its connection, in the order in which they came."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db = db
        self._queue: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"writer of {name}", daemon=True)
        self._thread.start()

    async def run(self, operation: Callable[[sqlite3.Connection], T], *, is_statement: bool = False) -> T:
        """The result of the operation, once it is committed. `is_statement`: one statement of it changes something, and
        no other does."""
        if self._closed:
            raise ClosedError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Operation(operation, future, loop, is_statement))
        return await future

    def close(self) -> None:
        """Finish what is queued, then close the connection; waits for that."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            self._commit(batch)
            _tell(batch)
        self._db.close()

    def _next_batch(self) -> list[_Operation]:
        """What is queued, at least one; empty when the writer is closed."""
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
        """Whether all of them went through. Savepoints would be two statements more for each."""
        try:
            for operation in batch:
                operation.result = operation.run(self._db)
        except BaseException as error:  # whose it is shows when they are run one by one
            if isinstance(error, sqlite3.Error) and not self._db.in_transaction:
                raise  # SQLite gave the whole transaction up: nothing of the batch is stored
            return False
        return True

    def _run_one(self, operation: _Operation) -> None:
        self._db.execute("SAVEPOINT operation")
        try:
            operation.result = operation.run(self._db)
        except BaseException as error:  # it belongs to the caller, who gets it
            if isinstance(error, sqlite3.Error) and not self._db.in_transaction:
                raise  # SQLite gave the whole transaction up: nothing of the batch is stored
            operation.error = error
            self._db.execute("ROLLBACK TO operation")
        self._db.execute("RELEASE operation")

    def _roll_back(self) -> None:
        # What goes wrong here, the next BEGIN says to a caller that can hear it.
        with contextlib.suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


def _run_alone(operation: _Operation, db: sqlite3.Connection) -> None:
    try:
        operation.result = operation.run(db)
    except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who gets it
        operation.error = error


def _tell(batch: list[_Operation]) -> None:
    """Wake the callers, with one signal per event loop. A loop that is closed has nobody waiting."""
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
