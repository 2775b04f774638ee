"""Replaces `schema_version`: Alembic's table now has the version, the new table `cell` the id of the owning cell."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # One row. A store belongs to one cell for ever, because its ids come from that cell's range.
    op.create_table("cell", sa.Column("id", sa.Integer, primary_key=True, autoincrement=False))
    op.execute("INSERT INTO cell (id) SELECT cell_id FROM schema_version")
    op.drop_table("schema_version")
