"""The keywords of a job and of the top level: each module reads the values of a few related keywords."""
