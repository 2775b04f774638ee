"""Whether a PostgreSQL database is ours to use, and how it gets the tables that this release works with.

Decided here: an empty database gets them, an older one is migrated, a newer one, another cell's and another program's
are refused and left alone. All of it is one transaction under one lock, so that of several processes that start at
the same time one migrates and the others find it done. What the tables are is said in
`remuda.cell.store.migrations`.
"""

from typing import Any

from remuda.cell.errors import DataFolderError
from remuda.cell.store import migrations
from remuda.lib.ids import range_of_cell

_LOCK = 7_236_388_301
"""Any number that nobody else uses for an advisory lock in this database."""


async def prepare(db: Any, where: str, cell_id: int) -> None:
    """Make or migrate the tables, for this cell; DataFolderError when it must not be done."""
    if await _checked(db, where, cell_id) == migrations.HEAD:
        return
    async with db.transaction():
        await db.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        version = await _checked(db, where, cell_id)
        if version == migrations.HEAD:
            return
        for statement in migrations.statements("postgresql", version):
            await db.execute(statement)
        ids = range_of_cell(cell_id)
        for table in migrations.ID_TABLES:
            await db.execute(
                f"CREATE SEQUENCE IF NOT EXISTS {table}_id MINVALUE {ids.first} MAXVALUE {ids.last} START {ids.first}"
            )
        await db.execute("INSERT INTO cell SELECT $1::integer WHERE NOT EXISTS (SELECT FROM cell)", cell_id)


async def revision(db: Any) -> str | None:
    """Which tables a database has; None when there are none of a cell's."""
    if await db.fetchval("SELECT to_regclass('alembic_version') IS NULL OR to_regclass('cell') IS NULL"):
        return None
    return str(await db.fetchval("SELECT version_num FROM alembic_version"))


async def _checked(db: Any, where: str, cell_id: int) -> str | None:
    version = await revision(db)
    if version is not None:
        migrations.check(where, version, await db.fetchval("SELECT id FROM cell"), cell_id)
        return version
    sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() LIMIT 1"
    if other := await db.fetchval(sql):
        raise DataFolderError(f"{where} is used by something else (it has a table {other}); give a database of its own")
    return None
