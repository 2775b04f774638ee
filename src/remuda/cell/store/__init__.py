"""Stores the data of a cell in a database, except logs and artifact files. `ports` has the interfaces."""
