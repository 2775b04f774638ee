"""Runs the steps of a job: keeps the tree of steps, decides their order, evaluates expressions, executes commands, and
stores results."""
