"""The output of `remuda run` and `remuda step run`: live tree, plain lines, logs, excerpts and tables."""
