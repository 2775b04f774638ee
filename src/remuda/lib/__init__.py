"""What has no domain: clock, waiting, ids, backoff, files, SQLite, masking, kill points. Standard library only."""
