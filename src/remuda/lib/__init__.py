"""What has no domain: clock, waiting, ids, backoff, files, SQLite writer, kill points, masking. Standard library only."""
