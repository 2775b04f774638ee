"""Adds the tables of sessions in browsers, of links that sign in once, and of users of an OpenID Connect provider."""

import sqlalchemy as sa
from alembic import op

from remuda.cell.store.migrations.columns import ID, TIME, body, key, text

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    for table, secret in (("web_sessions", "token_hash"), ("sign_in_links", "code_hash")):
        op.create_table(
            table,
            key(),
            text(secret),
            sa.Column("user_id", ID, nullable=False),
            sa.Column("expires_at", TIME, nullable=False),
            body(),
            sa.UniqueConstraint(secret),
        )
        op.create_index(f"{table}_of_user", table, ["user_id", "id"])
        op.create_index(f"{table}_by_expiry", table, ["expires_at"])
    op.create_table(
        "identities", key(), text("name"), sa.Column("user_id", ID, nullable=False), body(), sa.UniqueConstraint("name")
    )
    op.create_index("identities_of_user", "identities", ["user_id", "id"])
