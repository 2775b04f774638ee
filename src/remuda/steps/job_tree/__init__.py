"""The steps of a job as a tree: what has happened to each of them, and what follows. Pure."""
