"""Creates or migrates the tables of a cell in a SQLite file, in one transaction. A file of a newer release, of another
cell or of another program is refused and not changed."""

import sqlite3

from remuda.cell.errors import DataFolderError
from remuda.cell.store import migrations


def prepare(db: sqlite3.Connection, path: str, cell_id: int | None) -> int:
    """Create or migrate the tables, and return the id of the owning cell. Raises DataFolderError if the file belongs to
    another cell than `cell_id` (None: any cell, but no empty file), a newer release or another program."""
    db.execute("BEGIN IMMEDIATE")
    try:
        owner = _create_or_migrate(db, path, cell_id)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return owner


def _create_or_migrate(db: sqlite3.Connection, path: str, cell_id: int | None) -> int:
    version = read_revision(db)
    if version is None:
        if cell_id is None or db.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise DataFolderError(f"{path} is not the database of a cell; give another data folder")
        _run(db, migrations.sqlite_statements())
        db.execute("INSERT INTO cell VALUES (?)", (cell_id,))
        return cell_id
    owner = read_owner(db)
    migrations.check(path, version, owner, owner if cell_id is None else cell_id)
    if version != migrations.HEAD:
        if _old_version(db) is not None:
            db.execute(migrations.VERSION_TABLE)
            db.execute("INSERT INTO alembic_version VALUES (?)", (version,))
        _run(db, migrations.statements("sqlite", version))
    return owner


def read_revision(db: sqlite3.Connection) -> str | None:
    """Return the schema revision of a file; None if it has no tables of a cell."""
    if _has(db, "alembic_version") and _has(db, "cell"):
        return str(db.execute("SELECT version_num FROM alembic_version").fetchone()[0])
    return _old_version(db)


def _old_version(db: sqlite3.Connection) -> str | None:
    """Return the schema revision of a file that was created before Alembic was used; None for other files."""
    if not _has(db, "schema_version") or _has(db, "alembic_version"):
        return None
    return f"{db.execute('SELECT version FROM schema_version').fetchone()[0]:04}"


def read_owner(db: sqlite3.Connection) -> int:
    sql = "SELECT id FROM cell" if _has(db, "cell") else "SELECT cell_id FROM schema_version"
    return int(db.execute(sql).fetchone()[0])


def _has(db: sqlite3.Connection, table: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def _run(db: sqlite3.Connection, statements: list[str]) -> None:
    for statement in statements:
        db.execute(statement).fetchall()
