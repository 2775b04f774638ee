"""The runner manager: requests jobs it has room for, has agents run them, relays logs and results.

`core/` has the pure decisions, `polling/` requests jobs, `jobs/` runs them, `process/` supervises everything. It speaks
to cells (or a GitLab server) and to agents only over the wire. The journal lets a new process resume the jobs
of a dead one.
"""
