"""What the cell decides: synchronous functions of values. No I/O, no clock, no randomness."""
