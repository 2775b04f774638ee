"""Alembic runs this file to render revisions as SQL. The caller of the statements begins the transaction."""

from alembic import context

context.configure(dialect_name=context.config.attributes["dialect"], transactional_ddl=False)
context.run_migrations()
