"""The files that the agent keeps of a job: journal, log, files of steps."""
