"""The bare repositories of a cell: the port, and the adapter that runs the `git` program."""
