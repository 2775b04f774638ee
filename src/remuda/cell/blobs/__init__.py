"""Artifacts and other large objects: the port, its adapters, and archives that are read in place."""
