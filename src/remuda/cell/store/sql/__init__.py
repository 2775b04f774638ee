"""Code that the SQLite and the PostgreSQL store share: statements, filters, and rows of tables."""
