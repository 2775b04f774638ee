"""The manager's decisions as pure code: synchronous, without I/O, clock or randomness, so that tests are simple."""
