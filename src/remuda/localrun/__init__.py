"""Runs a complete CI platform (cell, runner manager, agent) on this machine for one pipeline: `remuda run`. `remuda up`
and `remuda step run` share parts of it."""
