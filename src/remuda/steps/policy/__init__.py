"""Step policy: which steps may run, which steps are added to every job, and which limits apply.

`document` parses a policy, `rules` evaluates it, `host_abilities` finds out once what this machine can enforce,
`step_limits` sets up the limits of a step. `enforcement` combines these for `steps.engine`, which runs jobs."""
