"""Adds schedules, trigger tokens and releases; columns for upstream jobs and resource groups; indexes for lists."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from remuda.cell.store.migrations.columns import ID, TEXT, TIME, TRUTH, body, key, of, text

revision = "0002"
down_revision = "0001"

_OF_PIPELINES: dict[str, Any] = {
    "source": TEXT,
    "name": TEXT,
    "tag": TRUTH,
    "yaml_errors": TEXT,
    "schedule_id": ID,
    "user_id": ID,
    "created_at": TIME,
    "updated_at": TIME,
}
_OF_JOBS: dict[str, Any] = {"ref": TEXT, "name": TEXT}


def upgrade() -> None:
    op.add_column("pipelines", sa.Column("upstream_job_id", ID))
    op.add_column("pipelines", sa.Column("is_child", TRUTH, nullable=False, server_default=sa.text("0")))
    op.create_index("pipelines_by_upstream", "pipelines", ["upstream_job_id"], unique=True)
    op.create_index("pipelines_of_ref", "pipelines", ["project_id", "ref", "status"])
    _add_copies("pipelines", _OF_PIPELINES)
    op.create_index("pipelines_listed", "pipelines", ["project_id", "id", "is_child"])
    _create_partial("pipelines_of_schedule", "pipelines", ["schedule_id", "id"], "schedule_id IS NOT NULL")

    op.add_column("jobs", sa.Column("resource_group", TEXT))
    op.add_column("jobs", sa.Column("is_trigger", TRUTH, nullable=False, server_default=sa.text("0")))
    op.drop_index("jobs_of_project", "jobs")
    op.create_index("jobs_of_project", "jobs", ["project_id", "id", "is_trigger"])
    _add_copies("jobs", _OF_JOBS)
    _create_partial("jobs_that_succeeded", "jobs", ["project_id", "ref", "name", "id"], "state = 'success'")
    _create_partial("jobs_by_resource", "jobs", ["project_id", "resource_group", "state"], "resource_group IS NOT NULL")

    # next_run_at is null while a schedule is not active.
    op.create_table("schedules", key(), of("projects", "project_id"), sa.Column("next_run_at", TIME), body())
    op.create_index("schedules_of_project", "schedules", ["project_id", "id"])
    _create_partial("schedules_by_time", "schedules", ["next_run_at"], "next_run_at IS NOT NULL")
    op.create_table(
        "triggers", key(), of("projects", "project_id"), text("token_hash"), body(), sa.UniqueConstraint("token_hash")
    )
    op.create_index("triggers_of_project", "triggers", ["project_id", "id"])
    op.create_table(
        "releases", of("projects", "project_id"), text("tag"), sa.Column("released_at", TIME, nullable=False), body(),
        sa.PrimaryKeyConstraint("project_id", "tag"), sqlite_with_rowid=False,
    )  # fmt: skip


def _add_copies(table: str, columns: dict[str, Any]) -> None:
    """Add columns that copy fields of the JSON body; SQLite computes them, in PostgreSQL the store writes them."""
    for name, kind in columns.items():
        if op.get_context().dialect.name == "sqlite":
            value = f"json_extract(CAST(body AS TEXT), '$.{name}')"
            op.execute(f"ALTER TABLE {table} ADD COLUMN {name} AS ({value}) VIRTUAL")
        else:
            op.add_column(table, sa.Column(name, kind))


def _create_partial(name: str, table: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)
