import sqlite3

import pytest

from remuda.testing.scalers import InlineWriter


def count_rows(db: sqlite3.Connection) -> int:
    return int(db.execute("select count(*) from numbers").fetchone()[0])


async def test_an_operation_that_raises_is_undone_as_by_the_real_writer() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("create table numbers (n integer)")
    writer = InlineWriter(db, "file")

    def insert_and_fail(db: sqlite3.Connection) -> None:
        db.execute("insert into numbers values (1)")
        raise KeyError

    with pytest.raises(KeyError):
        await writer.run(insert_and_fail)
    assert await writer.run(count_rows) == 0
    await writer.run(lambda db: db.execute("insert into numbers values (2)"))
    assert not db.in_transaction
    assert await writer.run(count_rows) == 1
    writer.close()
