"""The in-memory implementation of the cell's store, for tests."""
