"""Remuda runs CI jobs on a herd of fresh machines. The parts are listed in docs/architecture.md."""

__version__ = "0.1.0"
