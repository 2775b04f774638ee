"""Manages projects, groups and git refs, starts the pipelines of pushes, and issues container registry tokens."""
