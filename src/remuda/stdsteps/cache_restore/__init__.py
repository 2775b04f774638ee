"""The step `cache_restore`."""
