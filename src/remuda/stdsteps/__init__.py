"""The standard steps: checkout, caches, artifacts. Each is an ordinary program.

A step runs in the job's working directory, reads its inputs as JSON from the file that REMUDA_INPUTS names, prints
lines for the log, and writes its outputs to the file that REMUDA_OUTPUTS names. Its exit code is 0 for success, 1 for
a fault of the job, 75 for a fault of the platform. Steps use only the standard library.
"""
