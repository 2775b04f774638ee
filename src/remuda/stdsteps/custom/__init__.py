"""GitLab's custom executor: runs the stages of a job by programs (a *driver*) that the runner's configuration names."""
