"""The SQLite implementation of the cell's store."""
