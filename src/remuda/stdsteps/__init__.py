"""The standard steps: checkout, artifacts_download, artifacts_upload. Each is an ordinary program.

A step runs in the job's working directory, reads its inputs as JSON from the file that REMUDA_INPUTS names, prints
lines for the log, and ends with an exit code: 0 done, 1 the job's own fault, 75 the platform's. Standard library only.
"""
