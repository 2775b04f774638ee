"""GitLab's custom executor: the stages of a job through a driver's programs."""
