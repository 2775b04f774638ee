"""Steps and programs for the container of a job: create, remove and pause it, and run commands in it."""
