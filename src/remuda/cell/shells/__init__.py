"""Interactive shells for users, in running jobs and in failed jobs that are kept for debugging."""
