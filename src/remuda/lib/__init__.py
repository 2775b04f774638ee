"""General tools without knowledge of CI, standard library only: clock, waiting, ids, backoff, files, SQLite, masking."""
