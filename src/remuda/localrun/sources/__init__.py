"""Reads the folder of a local run: its git repository, a snapshot of it, and the files that its pipeline includes."""
