"""Decides whether a job or pipeline is created: `rules`, `only`, `except`, and the expressions and patterns in them."""
