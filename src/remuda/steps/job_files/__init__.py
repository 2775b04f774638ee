"""The files that the agent keeps on disk for itself and for each job: data folder, journal, log, disk space."""
