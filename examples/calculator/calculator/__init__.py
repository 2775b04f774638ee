"""A calculator: `expression` reads and evaluates, `__main__` is the command."""
