"""The store in memory, for unit tests."""
