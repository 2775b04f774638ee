"""General tools for all parts: clock, waiting, ids, backoff, files, SQLite, masking. Uses only the standard library."""
