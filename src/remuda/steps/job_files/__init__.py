"""What jobs and the agent keep on the disk: data folder, journal, log, disk space."""
