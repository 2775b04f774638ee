"""What has no domain: clock, waiting, ids, backoff, files, kill points, masking. Standard library only."""
