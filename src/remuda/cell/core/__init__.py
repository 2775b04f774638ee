"""Decisions of the cell: synchronous functions of values. No I/O, no clock, no randomness."""
