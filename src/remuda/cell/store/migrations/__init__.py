"""The schema of a cell's tables as Alembic revisions. They become SQL text, which the store runs, so they cannot read
rows in Python. Importing Alembic is slow, so a new SQLite file is created from `sqlite.sql`, the whole schema. To add a
revision, add a file in `versions` and its name in `NAMES`, and run `tools/sqlite-sql`; a test checks the result. SQLite
can compute a column from the JSON in the column `body`; in PostgreSQL the store must write it (`Table.generated`)."""

import io
from pathlib import Path

from remuda.cell.errors import DataFolderError

NAMES = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012")
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
    "lfs_locks",
    "environments",
    "deployments",
    "resource_groups",
    "deploy_tokens",
    "hooks",
    "hook_deliveries",
    "web_sessions",
    "sign_in_links",
    "identities",
)
"""Tables whose rows get ids from the range of the cell."""

_FOLDER = Path(__file__).parent


def statements(dialect: str, since: str | None) -> list[str]:
    """Return the SQL from the revision `since` (None: empty database) to `HEAD`, for `sqlite` or `postgresql`."""
    from alembic import command
    from alembic.config import Config

    config = Config(output_buffer=(text := io.StringIO()))
    config.set_main_option("script_location", str(_FOLDER))
    config.attributes["dialect"] = dialect
    command.upgrade(config, f"{since or 'base'}:head", sql=True)
    return [statement.strip() for statement in text.getvalue().split(";\n") if statement.strip()]


def sqlite_statements() -> list[str]:
    """Return the SQL that creates the schema in a new SQLite file, without importing Alembic."""
    text = (_FOLDER / "sqlite.sql").read_text()
    return [statement.strip() for statement in text.split(";\n") if statement.strip()]


def check(where: str, revision: str, owner: int | None, cell_id: int) -> None:
    """Raise DataFolderError if a newer release made the schema `revision`, or if the database belongs to another cell,
    `owner` (None: not checked). `where` names the database in the message."""
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
