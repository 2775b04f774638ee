"""Adds organizations, namespaces, users, members, ids of user tokens, and variables of groups and of the cell."""

import sqlalchemy as sa
from alembic import op

from remuda.cell.store.migrations.columns import ID, body, key, text

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # Paths and names are unique without regard to case: columns that end in _key, and search_text, are case-folded.
    op.create_table("organizations", key(), text("path_key"), body(), sa.UniqueConstraint("path_key"))
    op.create_table(
        "namespaces",
        key(),
        text("path_key"),
        sa.Column("parent_id", ID),
        sa.Column("organization_id", ID, nullable=False),
        text("search_text"),
        body(),
        sa.UniqueConstraint("path_key"),
    )
    op.create_index("namespaces_inside", "namespaces", ["parent_id"])
    op.create_table(
        "users",
        key(),
        text("name_key"),
        sa.Column("organization_id", ID, nullable=False),
        text("search_text"),
        text("email_key"),
        body(),
        sa.UniqueConstraint("name_key"),
    )
    op.create_table(
        "members", text("kind"), sa.Column("owner_id", ID, nullable=False), sa.Column("user_id", ID, nullable=False),
        body(), sa.PrimaryKeyConstraint("kind", "owner_id", "user_id"), sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_index("members_by_user", "members", ["user_id"])
    _seed()
    # group_id is 0 for a project's variable, project_id for a group's, both for a variable of the whole cell.
    op.rename_table("variables", "project_variables")
    op.create_table(
        "variables", sa.Column("project_id", ID, nullable=False), sa.Column("group_id", ID, nullable=False),
        text("key"), text("environment_scope"), body(),
        sa.PrimaryKeyConstraint("project_id", "group_id", "key", "environment_scope", name="variables_named"),
        sqlite_with_rowid=False,
    )  # fmt: skip
    op.execute("INSERT INTO variables SELECT project_id, 0, key, '*', body FROM project_variables")
    op.drop_table("project_variables")
    op.execute(f"UPDATE user_tokens SET body = {_WITH_ID[op.get_context().dialect.name]}")


_WITH_ID = {
    "sqlite": "CAST(json_set(CAST(body AS TEXT), '$.id', number) AS BLOB)",
    "postgresql": (
        "convert_to(CAST(jsonb_set(CAST(convert_from(body, 'UTF8') AS jsonb), '{id}', to_jsonb(number)) AS text),"
        " 'UTF8')"
    ),
}


_ORGANIZATION = '{"version":1,"id":1,"path":"default","name":"Default","created_at":0}'
_NAMESPACE = '{"version":1,"id":1,"path":"root","name":"Administrator","created_at":0,"owner_id":1}'
_USER = (
    '{"version":1,"id":1,"username":"root","name":"Administrator","email":"admin@example.com","created_at":0,'
    '"namespace_id":1,"is_admin":true}'
)


def _seed() -> None:
    """Insert the default organization, the `root` namespace and the first administrator, which every cell has."""
    newline = "char(10)" if op.get_context().dialect.name == "sqlite" else "chr(10)"
    names = f"'root' || {newline} || 'administrator'"
    op.execute(f"INSERT INTO organizations VALUES (1, 'default', {_body(_ORGANIZATION)})")
    op.execute(f"INSERT INTO namespaces VALUES (1, 'root', NULL, 1, {names}, {_body(_NAMESPACE)})")
    op.execute(f"INSERT INTO users VALUES (1, 'root', 1, {names}, 'admin@example.com', {_body(_USER)})")


def _body(written: str) -> str:
    # A colon would begin a parameter.
    written = written.replace(":", "\\:")
    is_sqlite = op.get_context().dialect.name == "sqlite"
    return f"CAST('{written}' AS BLOB)" if is_sqlite else f"convert_to('{written}', 'UTF8')"
