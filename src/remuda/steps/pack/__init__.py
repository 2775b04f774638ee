"""The agent as one file, and the forms in which this program can run."""
