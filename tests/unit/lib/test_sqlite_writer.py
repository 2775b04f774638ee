"""The writer runs the operations of many callers in one transaction; a failed operation undoes only itself."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.lib.sqlite_writer import ClosedError, Writer


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    db = sqlite3.connect(tmp_path / "file", isolation_level=None, check_same_thread=False)
    db.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")
    writer = Writer(db, "file")
    yield writer
    writer.close()


async def insert(writer: Writer, number: int, *, fails: bool = False) -> int:
    def operation(db: sqlite3.Connection) -> int:
        db.execute("INSERT INTO numbers VALUES (?)", (number,))
        if fails:
            raise KeyError(number)
        return number

    return await writer.run(operation)


def read_numbers(db: sqlite3.Connection) -> list[int]:
    return [row[0] for row in db.execute("SELECT n FROM numbers ORDER BY n")]


async def test_each_caller_gets_its_own_result(writer: Writer) -> None:
    assert await asyncio.gather(*[insert(writer, number) for number in range(100)]) == list(range(100))
    assert await writer.run(read_numbers) == list(range(100))


async def test_a_failed_operation_undoes_only_itself(writer: Writer) -> None:
    calls = [insert(writer, number, fails=number % 7 == 3) for number in range(30)]
    results = await asyncio.gather(*calls, insert(writer, 5), return_exceptions=True)
    assert [type(result) for result in results[3::7]] == [KeyError] * 4
    assert isinstance(results[-1], sqlite3.IntegrityError)
    successful = [number for number in range(30) if number % 7 != 3]
    assert [results[number] for number in successful] == successful
    assert await writer.run(read_numbers) == successful


async def test_a_closed_writer_refuses_operations(writer: Writer) -> None:
    writer.close()
    with pytest.raises(ClosedError):
        await insert(writer, 1)
