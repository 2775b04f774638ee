"""The steps of a job as a tree: the state of each step, and what the agent has to do next. Pure: no I/O."""
