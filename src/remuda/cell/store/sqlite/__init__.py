"""The SQLite implementation of the cell's store: one file in the data folder."""
