"""What fulfils the cell's ports: in memory for tests, SQLite and plain files for real."""
