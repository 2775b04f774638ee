"""Alembic runs this file to render revisions as SQL without BEGIN and COMMIT, which the caller adds."""

from alembic import context

context.configure(dialect_name=context.config.attributes["dialect"], transactional_ddl=False)
context.run_migrations()
