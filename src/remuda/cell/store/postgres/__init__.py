"""The PostgreSQL implementation of the cell's store."""
