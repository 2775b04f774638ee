"""Formats the output of commands: tables, trees, graphs, logs. Pure functions of values."""
