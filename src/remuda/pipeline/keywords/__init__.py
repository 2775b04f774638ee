"""Reads the keywords of jobs and of the top level of a pipeline file: each module reads a few related keywords."""
