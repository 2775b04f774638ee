"""Turns pipeline files into one tree of values: parses YAML, checks keys, resolves references, expands variables."""
