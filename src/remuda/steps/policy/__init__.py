"""Step policy: which steps may run, which must, and within which limits.

`document` reads a policy, `rules` decides (both pure). `host_abilities` finds out once what this machine can enforce;
`step_limits` sets up the limits of one step, with `process.cgroups`, `job_user`, `measurement` and
`process.enclosure_entry`. `enforcement` is what the engine calls for every step.
"""
