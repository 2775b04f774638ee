"""Decides whether a job or a pipeline is created: `rules`, `only`, `except`, and the expressions
and patterns in them.
"""
