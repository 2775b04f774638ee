"""Whether a SQLite file is ours to use, and how it gets the tables that this release works with.

Decided here: a new file gets them at once, an older one is migrated in one transaction, a newer one, another cell's and
another program's are refused and left alone. What the tables are is said in `remuda.cell.store.migrations`.
"""

import sqlite3

from remuda.cell.errors import DataFolderError
from remuda.cell.store import migrations


def prepare(db: sqlite3.Connection, path: str, cell_id: int | None) -> int:
    """Create the tables in an empty file, bring an older file up to date, or refuse one that is not this cell's.

    None takes the file of any cell, but no empty one. The answer is whose file it is.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        whose = _prepared(db, path, cell_id)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return whose


def _prepared(db: sqlite3.Connection, path: str, cell_id: int | None) -> int:
    version = revision(db)
    if version is None:
        if cell_id is None or db.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise DataFolderError(f"{path} is the database of something else; give another data folder")
        _run(db, migrations.sqlite_statements())
        db.execute("INSERT INTO cell VALUES (?)", (cell_id,))
        return cell_id
    whose = owner(db)
    migrations.check(path, version, whose, whose if cell_id is None else cell_id)
    if version != migrations.HEAD:
        if _old_version(db) is not None:
            db.execute(migrations.VERSION_TABLE)
            db.execute("INSERT INTO alembic_version VALUES (?)", (version,))
        _run(db, migrations.statements("sqlite", version))
    return whose


def revision(db: sqlite3.Connection) -> str | None:
    """Which tables a file has; None when they are none of a cell's."""
    if _has(db, "alembic_version") and _has(db, "cell"):
        return str(db.execute("SELECT version_num FROM alembic_version").fetchone()[0])
    return _old_version(db)


def _old_version(db: sqlite3.Connection) -> str | None:
    """The version of a file that kept a number of its own for it, as the name of a revision."""
    if not _has(db, "schema_version") or _has(db, "alembic_version"):
        return None
    return f"{db.execute('SELECT version FROM schema_version').fetchone()[0]:04}"


def owner(db: sqlite3.Connection) -> int:
    """Whose file it is."""
    sql = "SELECT id FROM cell" if _has(db, "cell") else "SELECT cell_id FROM schema_version"
    return int(db.execute(sql).fetchone()[0])


def _has(db: sqlite3.Connection, table: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def _run(db: sqlite3.Connection, statements: list[str]) -> None:
    for statement in statements:
        db.execute(statement).fetchall()
