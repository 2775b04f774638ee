"""Runs a complete CI platform (the cell, which is the server, a runner manager and an agent) on this machine for one
pipeline: `remuda run`. `remuda up` and `remuda step run` share parts of it."""
