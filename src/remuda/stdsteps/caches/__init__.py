"""Storage of caches for `cache_restore` and `cache_save`: a local folder or object storage."""
