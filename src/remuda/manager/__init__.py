"""The runner manager: requests jobs from a Remuda cell (Remuda's own CI server) or a GitLab server, runs them through
agents on the jobs' machines, and sends logs and step results back.

`core/` has the decisions without I/O, `polling/` requests jobs, `jobs/` runs them, `environments/` provides machines,
`process/` supervises everything. A file with all current jobs, the journal, lets a new process resume them."""
