"""What has no domain: clock, ids, backoff, kill points, masking. Standard library only."""
