"""Storage of traces, the logs of jobs: the interface, files while a job runs, blobs when it has ended."""
