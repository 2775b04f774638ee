"""Kinds of columns that the revisions share, so that a row means the same in SQLite and in PostgreSQL.

Ids do not fit into 32 bits, yet only a column that SQLite calls INTEGER is its row id. Text is ordered by its bytes
everywhere, not by the language that a database server was set up for. Truth is 0 or 1.
"""

from typing import Any

import sqlalchemy as sa

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TIME: sa.types.TypeEngine[Any] = sa.Double().with_variant(sa.REAL(), "sqlite")
TRUTH = sa.Integer()
BODY = sa.LargeBinary()


def key(name: str = "id") -> sa.Column[Any]:
    """A primary key that the store gives."""
    return sa.Column(name, ID, primary_key=True, autoincrement=False)


def of(table: str, name: str, *, on_delete: str | None = None) -> sa.Column[Any]:
    """A reference."""
    return sa.Column(name, ID, sa.ForeignKey(f"{table}.id", ondelete=on_delete), nullable=False)


def text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    """Text."""
    return sa.Column(name, TEXT, nullable=nullable)


def body() -> sa.Column[Any]:
    """The whole value."""
    return sa.Column("body", BODY, nullable=False)
