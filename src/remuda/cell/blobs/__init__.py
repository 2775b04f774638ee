"""Artifacts and other large objects: the port, adapters for folders and object storage, archives read in place."""
