"""Adds the table of the audit log."""

import sqlalchemy as sa
from alembic import op

from remuda.cell.store.migrations.columns import ID, TIME, body, key, text

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "audit_events",
        key(),
        sa.Column("created_at", TIME, nullable=False),
        text("action"),
        sa.Column("author_id", ID, nullable=False),
        text("entity_type"),
        sa.Column("entity_id", ID, nullable=False),
        body(),
    )
    op.create_index("audit_events_by_time", "audit_events", ["created_at"])
    op.create_index("audit_events_by_author", "audit_events", ["author_id", "id"])
    op.create_index("audit_events_by_entity", "audit_events", ["entity_type", "entity_id", "id"])
