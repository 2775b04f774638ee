"""Turns the text of pipeline files into one tree of values: parses YAML, checks keys and types, resolves `extends` and
references, and expands variables.
"""
