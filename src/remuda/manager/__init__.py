"""The runner manager: requests jobs from a cell or a GitLab server, runs them through agents, and sends logs and step
results back.

`core/` has the decisions without I/O, `polling/` requests jobs, `jobs/` runs them, `environments/` provides machines,
`process/` supervises everything. A journal lets a new process resume the jobs of an earlier one.
"""
