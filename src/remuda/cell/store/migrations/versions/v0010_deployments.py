"""Adds environments, deployments and resource groups, and an index for the pipelines of a commit."""

import sqlalchemy as sa
from alembic import op

from remuda.cell.store.migrations.columns import ID, TIME, body, text

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    # auto_stop_at is null for an environment that is never stopped by itself.
    op.create_table(
        "environments", sa.Column("id", ID, nullable=False), sa.Column("project_id", ID, nullable=False),
        text("name"), text("state"), text("search_text"), sa.Column("auto_stop_at", TIME), body(),
        sa.PrimaryKeyConstraint("project_id", "name"), sa.UniqueConstraint("id"), sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_index("environments_of_project", "environments", ["project_id", "id"])
    condition = sa.text("auto_stop_at IS NOT NULL")
    op.create_index(
        "environments_by_time", "environments", ["auto_stop_at"], sqlite_where=condition, postgresql_where=condition
    )
    # status, updated_at and finished_at are null if the deployment has a job, from which they follow.
    op.create_table(
        "deployments", sa.Column("id", ID, primary_key=True, autoincrement=False),
        sa.Column("project_id", ID, nullable=False), sa.Column("iid", ID, nullable=False),
        sa.Column("environment_id", ID, nullable=False), sa.Column("job_id", ID),
        text("status", nullable=True), sa.Column("updated_at", TIME), sa.Column("finished_at", TIME), body(),
        sa.UniqueConstraint("project_id", "iid"),
    )  # fmt: skip
    op.create_index("deployments_of_project", "deployments", ["project_id", "id"])
    op.create_index("deployments_of_environment", "deployments", ["environment_id", "id"])
    op.create_index("deployments_of_job", "deployments", ["job_id"])
    op.create_table(
        "resource_groups", sa.Column("id", ID, nullable=False), sa.Column("project_id", ID, nullable=False),
        text("key"), text("process_mode"), body(),
        sa.PrimaryKeyConstraint("project_id", "key"), sa.UniqueConstraint("id"), sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_index("pipelines_of_commit", "pipelines", ["project_id", "sha", "id"])
