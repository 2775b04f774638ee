"""Run by Alembic: renders revisions as SQL. Nothing is decided here; transactions are the caller's business."""

from alembic import context

context.configure(dialect_name=context.config.attributes["dialect"], transactional_ddl=False)
context.run_migrations()
