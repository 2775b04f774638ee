"""How the tables of a cell came to be what they are: one Alembic revision a step, for SQLite and PostgreSQL alike.

Decided here: that a migration is a list of SQL statements, which the caller runs in a transaction of its own. So a
revision never reads what is stored; it says in SQL what shall be done with it. `HEAD` is the revision that this
release works with, and `NAMES` are all it knows. Alembic takes a while to import and is not needed where nothing has
to be migrated: `sqlite.sql` beside this file holds what the revisions come to for a new SQLite file.

A new revision is a file in `versions`, its name in `NAMES`, and a run of `tools/sqlite-sql`; a test compares. What
SQLite can read from the body PostgreSQL needs a column for, which the store writes.

`sqlite_schema` and `postgres_schema` call this. What a row means is said in `remuda.cell.store.row_bodies`.
"""

import io
from pathlib import Path

from remuda.cell.errors import DataFolderError

NAMES = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
HEAD = NAMES[-1]
VERSION_TABLE = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
ID_TABLES = (
    "projects",
    "pipelines",
    "jobs",
    "runners",
    "schedules",
    "triggers",
    "organizations",
    "namespaces",
    "users",
    "user_tokens",
    "audit_events",
)
"""Whose rows get their ids from the cell's range."""

_FOLDER = Path(__file__).parent


def statements(dialect: str, since: str | None) -> list[str]:
    """What brings a database from a revision (None: from nothing) to `HEAD`; the dialect is Alembic's name for it."""
    from alembic import command
    from alembic.config import Config

    config = Config(output_buffer=(text := io.StringIO()))
    config.set_main_option("script_location", str(_FOLDER))
    config.attributes["dialect"] = dialect
    command.upgrade(config, f"{since or 'base'}:head", sql=True)
    return [statement.strip() for statement in text.getvalue().split(";\n") if statement.strip()]


def sqlite_statements() -> list[str]:
    """The same for a new SQLite file, without Alembic."""
    text = (_FOLDER / "sqlite.sql").read_text()
    return [statement.strip() for statement in text.split(";\n") if statement.strip()]


def check(where: str, revision: str, owner: int | None, cell_id: int) -> None:
    """DataFolderError when a database is not for this release or not for this cell."""
    if revision not in NAMES:
        raise DataFolderError(
            f"{where} has schema version {revision}, made by a newer release; this one reads up to {HEAD}. "
            "Install that release or a later one, or give another data folder or database"
        )
    if owner is not None and owner != cell_id:
        raise DataFolderError(
            f"{where} belongs to cell {owner}, not to cell {cell_id}: its ids come from another range. "
            f"Start it with --cell-id {owner}, or give another data folder or database"
        )
