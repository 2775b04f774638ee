"""The manager's decisions: synchronous, without I/O, clock or randomness."""
