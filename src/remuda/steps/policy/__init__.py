"""Step policy: which steps may run, which are added to every job, and which limits apply.

`document` parses a policy, `rules` evaluates it (both without I/O). `host_abilities` finds out once what this machine
can enforce; `step_limits` sets up the limits of one step, with `process.cgroups`, `job_user`, `measurement` and
`process.enclosure_entry`. `enforcement` combines these for the engine, which calls it for every step.
"""
