"""Creates or migrates the tables of a cell in PostgreSQL. A database of a newer release, of another cell or of another
program is refused and not changed. Changes are made in one transaction that holds a lock: of several processes that
start at the same time, one migrates, and the others wait and then find the tables migrated."""

from typing import Any

from remuda.cell.errors import DataFolderError
from remuda.cell.store import migrations
from remuda.lib.ids import range_of_cell

_LOCK = 7_236_388_301
"""An advisory lock that nothing else in this database uses."""


async def prepare(db: Any, where: str, cell_id: int) -> None:
    """Create or migrate the tables. Raises DataFolderError if they are of a newer release, another cell or program."""
    if await _check_revision(db, where, cell_id) == migrations.HEAD:
        return
    async with db.transaction():
        await db.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        version = await _check_revision(db, where, cell_id)
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


async def read_revision(db: Any) -> str | None:
    """Return the schema revision of a database; None if it has no tables of a cell."""
    if await db.fetchval("SELECT to_regclass('alembic_version') IS NULL OR to_regclass('cell') IS NULL"):
        return None
    return str(await db.fetchval("SELECT version_num FROM alembic_version"))


async def _check_revision(db: Any, where: str, cell_id: int) -> str | None:
    version = await read_revision(db)
    if version is not None:
        migrations.check(where, version, await db.fetchval("SELECT id FROM cell"), cell_id)
        return version
    sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() LIMIT 1"
    if other := await db.fetchval(sql):
        raise DataFolderError(f"{where} is used by something else (it has a table {other}); give a database of its own")
    return None
