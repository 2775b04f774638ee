"""Column types for the Alembic revisions, so that a column has the same content in SQLite and PostgreSQL. SQLite uses a
key column as row id only if it is INTEGER. Text is sorted by its bytes, whatever the locale of the server."""

from typing import Any

import sqlalchemy as sa

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TIME: sa.types.TypeEngine[Any] = sa.Double().with_variant(sa.REAL(), "sqlite")
TRUTH = sa.Integer()
BODY = sa.LargeBinary()


def key(name: str = "id") -> sa.Column[Any]:
    """Return a primary key column whose values are assigned by the store, not by the database."""
    return sa.Column(name, ID, primary_key=True, autoincrement=False)


def of(table: str, name: str, *, on_delete: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, ID, sa.ForeignKey(f"{table}.id", ondelete=on_delete), nullable=False)


def text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, TEXT, nullable=nullable)


def body() -> sa.Column[Any]:
    return sa.Column("body", BODY, nullable=False)
