"""Reads the keywords of a job and of the top level of a pipeline file: each module reads a few related keywords. Used
by `remuda.pipeline.compile`.
"""
