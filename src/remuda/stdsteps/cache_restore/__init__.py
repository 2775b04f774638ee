"""The step `cache_restore`: unpacks a cache into the working directory."""
