"""General tools without knowledge of CI: clock, waiting, ids, backoff, files, SQLite, masking. Standard library."""
