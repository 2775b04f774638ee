"""The standard steps: checkout, caches, artifacts. Each is an ordinary program.

A step runs in the job's working directory, reads its inputs as JSON from the file that REMUDA_INPUTS names, prints
lines for the log, and ends with an exit code: 0 done, 1 the job's own fault, 75 the platform's. What it has to tell as
data it writes to the file that REMUDA_OUTPUTS names. Standard library only.
"""
