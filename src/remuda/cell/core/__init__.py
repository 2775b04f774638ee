"""The decisions of a cell as pure functions: they take values and return values, without I/O, clock or randomness."""
