"""The logs of jobs: the port, files while a job runs, blobs when it has ended."""
