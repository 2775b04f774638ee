"""What `remuda run` and `remuda step run` print: the live tree, plain lines, logs, excerpts and tables."""
