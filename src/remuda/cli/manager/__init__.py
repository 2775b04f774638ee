"""The commands `remuda manager ...`, which run and configure a runner manager."""
