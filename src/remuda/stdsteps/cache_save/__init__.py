"""The step `cache_save`."""
