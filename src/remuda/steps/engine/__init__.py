"""Runs the steps of a job: keeps the tree of steps, decides their order, executes commands, and stores results."""
