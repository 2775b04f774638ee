"""The container of a job: open, close, pause, and commands in it."""
