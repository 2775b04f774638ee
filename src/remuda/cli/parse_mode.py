"""Whether this process reads options. Set by `main`, before any command is imported; see `parameter`."""

options_are_read = True
