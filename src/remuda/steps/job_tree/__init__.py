"""The steps of a job as a tree: the state of each step, and which action follows. Pure: no I/O."""
