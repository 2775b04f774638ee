"""Where caches are kept: a local folder or object storage."""
