"""The commands `remuda manager ...`, which run and configure a runner manager; one module for a few related
commands."""
