"""Interactive shells in running jobs, and in failed jobs that are kept for debugging, for people to look around."""
