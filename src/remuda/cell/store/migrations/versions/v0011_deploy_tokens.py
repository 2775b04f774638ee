"""Adds the tables of deploy tokens and of webhooks with their deliveries."""

import sqlalchemy as sa
from alembic import op

from remuda.cell.store.migrations.columns import ID, TIME, body, key, text

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    # The owner is a project or a group.
    op.create_table(
        "deploy_tokens",
        key(),
        text("kind"),
        sa.Column("owner_id", ID, nullable=False),
        text("token_hash"),
        body(),
        sa.UniqueConstraint("token_hash"),
    )
    op.create_index("deploy_tokens_of_owner", "deploy_tokens", ["kind", "owner_id", "id"])
    op.create_table("hooks", key(), text("kind"), sa.Column("owner_id", ID, nullable=False), body())
    op.create_index("hooks_of_owner", "hooks", ["kind", "owner_id", "id"])
    op.create_table(
        "hook_deliveries",
        key(),
        sa.Column("hook_id", ID, nullable=False),
        text("uuid"),
        # NULL: delivered, or given up.
        sa.Column("due_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        body(),
        sa.UniqueConstraint("uuid"),
    )
    op.create_index("hook_deliveries_of_hook", "hook_deliveries", ["hook_id", "id"])
    condition = sa.text("due_at IS NOT NULL")
    op.create_index(
        "hook_deliveries_due", "hook_deliveries", ["due_at"], sqlite_where=condition, postgresql_where=condition
    )
    op.create_index("hook_deliveries_by_time", "hook_deliveries", ["created_at"])
