"""Storage of traces, the logs of jobs: the interface, and its implementation with files while a job runs and blobs when
it has ended."""
