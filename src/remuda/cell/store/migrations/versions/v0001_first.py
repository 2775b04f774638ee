"""Creates the first tables. A row has the whole value as JSON in the column `body`, and copies of fields that queries
need. The spec of a job (script, image and so on) has its own table; all attempts of a job share it by `spec_id`."""

import sqlalchemy as sa
from alembic import op

from remuda.cell.store.migrations.columns import ID, TRUTH, body, key, of, text

revision = "0001"
down_revision = None

_BUSY = {"fillfactor": 80}
"""Leaves room in each page of PostgreSQL, because these rows are updated often."""


def upgrade() -> None:
    op.create_table(
        "schema_version",
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("cell_id", sa.Integer, nullable=False),
    )
    if op.get_context().dialect.name == "sqlite":
        # The last id drawn per table; ids are never used twice, not even after a removal. PostgreSQL has sequences.
        op.create_table(
            "sequences",
            sa.Column("name", sa.Text, primary_key=True),
            sa.Column("last", sa.Integer, nullable=False),
            sqlite_with_rowid=False,
        )
    # One row whose counter `check_writable` increments, to know that a commit succeeds.
    op.create_table("probe", key(), sa.Column("writes", ID, nullable=False), sa.CheckConstraint("id = 1"))
    op.create_table("settings", text("name"), text("value"), sa.PrimaryKeyConstraint("name"), sqlite_with_rowid=False)
    op.create_table(
        "signing_keys", key("number"), text("kid"), sa.Column("pem", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("kid"),
    )  # fmt: skip
    op.create_table("user_tokens", key("number"), text("token_hash"), body(), sa.UniqueConstraint("token_hash"))
    # Paths are unique without regard to case: path_key and search_text are case-folded.
    op.create_table("projects", key(), text("path_key"), text("search_text"), body(), sa.UniqueConstraint("path_key"))
    op.create_table(
        "variables", of("projects", "project_id"), text("key"), body(),
        sa.PrimaryKeyConstraint("project_id", "key"), sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_table(
        "seen_refs", of("projects", "project_id"), text("ref"), text("sha"),
        sa.PrimaryKeyConstraint("project_id", "ref"), sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_table(
        "pipelines",
        key(),
        of("projects", "project_id"),
        sa.Column("iid", ID, nullable=False),
        text("ref"),
        text("sha"),
        text("status"),
        body(),
        sa.UniqueConstraint("project_id", "iid"),
        postgresql_with=_BUSY,
    )
    op.create_table("specs", key(), body())
    op.create_table(
        "jobs",
        key(),
        sa.Column("project_id", ID, nullable=False),
        of("pipelines", "pipeline_id"),
        of("specs", "spec_id"),
        text("state"),
        sa.Column("retried", TRUTH, nullable=False),
        sa.Column("runner_id", ID),
        text("request_id", nullable=True),
        body(),
        postgresql_with=_BUSY,
    )
    op.create_index("jobs_of_pipeline", "jobs", ["pipeline_id", "id"])
    op.create_index("jobs_of_project", "jobs", ["project_id", "id"])
    op.create_index("jobs_by_state", "jobs", ["state", "id"])
    leased = sa.text("state = 'leased'")
    op.create_index(
        "jobs_by_request", "jobs", ["runner_id", "request_id"], sqlite_where=leased, postgresql_where=leased
    )
    op.create_table("runners", key(), text("token_hash"), body(), sa.UniqueConstraint("token_hash"))
    op.create_table(
        "managers", of("runners", "runner_id", on_delete="CASCADE"), text("system_id"), body(),
        sa.PrimaryKeyConstraint("runner_id", "system_id"), sqlite_with_rowid=False, postgresql_with=_BUSY,
    )  # fmt: skip
    op.create_table(
        "results", of("jobs", "job_id"), sa.Column("seq", ID, nullable=False), body(),
        sa.PrimaryKeyConstraint("job_id", "seq"), sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_table(
        "artifacts", of("jobs", "job_id"), text("type"), body(),
        sa.PrimaryKeyConstraint("job_id", "type"), sqlite_with_rowid=False,
    )  # fmt: skip
