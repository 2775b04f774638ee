"""How commands show what they know: tables, trees, graphs, logs. Pure functions of values."""
