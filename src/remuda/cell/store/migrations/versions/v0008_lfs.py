"""Adds the tables of Git LFS: objects of projects, their total size for each project, and locks of files."""

import sqlalchemy as sa
from alembic import op

from remuda.cell.store.migrations.columns import ID, body, key, of, text

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "lfs_objects",
        of("projects", "project_id"),
        text("oid"),
        body(),
        sa.PrimaryKeyConstraint("project_id", "oid"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "lfs_usage",
        sa.Column("project_id", ID, sa.ForeignKey("projects.id"), primary_key=True, autoincrement=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "lfs_locks",
        key(),
        of("projects", "project_id"),
        text("path_key"),
        body(),
        sa.UniqueConstraint("path_key"),
    )
    op.create_index("lfs_locks_of_project", "lfs_locks", ["project_id", "id"])
