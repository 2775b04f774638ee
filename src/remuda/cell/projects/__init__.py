"""Manages projects, groups and git refs, starts the pipelines of pushes, and issues tokens for the
container registry.
"""
