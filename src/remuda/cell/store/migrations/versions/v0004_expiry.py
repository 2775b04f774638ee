"""Adds a column with the time at which the cell must check whether an artifact has expired."""

import sqlalchemy as sa
from alembic import op

from remuda.cell.store.migrations.columns import TIME

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        value = "json_extract(CAST(body AS TEXT), '$.look_at')"
        op.execute(f"ALTER TABLE artifacts ADD COLUMN look_at AS ({value}) VIRTUAL")
        # Existing artifacts have no `look_at`: with their creation time they are checked once, which computes one.
        created = "json_extract(CAST(body AS TEXT), '$.created_at')"
        op.execute(f"UPDATE artifacts SET body = CAST(json_set(CAST(body AS TEXT), '$.look_at', {created}) AS BLOB)")
    else:
        op.add_column("artifacts", sa.Column("look_at", TIME))
    due = sa.text("look_at IS NOT NULL")
    op.create_index(
        "artifacts_by_time", "artifacts", ["look_at", "job_id", "type"], sqlite_where=due, postgresql_where=due
    )
