"""Why a job waits, how long, and how much work there is for which runners."""
