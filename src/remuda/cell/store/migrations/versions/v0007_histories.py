"""Adds indexes, so that lists and counts stay fast with a long history of a project, a ref or a runner."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.drop_index("pipelines_of_ref", "pipelines")
    op.create_index("pipelines_of_ref", "pipelines", ["project_id", "ref", "status", "id"])
    op.create_index("pipelines_listed_by_ref", "pipelines", ["project_id", "ref", "id"])
    _create_partial(
        "pipelines_open",
        "pipelines",
        ["status", "updated_at"],
        "status NOT IN ('success', 'failed', 'canceled', 'skipped')",
    )
    op.create_index("jobs_listed_by_state", "jobs", ["project_id", "state", "id"])
    _create_partial("jobs_of_runner", "jobs", ["runner_id", "state", "id"], "runner_id IS NOT NULL")


def _create_partial(name: str, table: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)
