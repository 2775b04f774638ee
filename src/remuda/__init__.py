"""Remuda runs CI jobs on fleets of machines. The parts are listed in docs/architecture.md."""

__version__ = "0.1.0"
