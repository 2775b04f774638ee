"""The step runner: an agent in the job's environment that runs steps and keeps logs and results until fetched.

`definition` reads what to run, `plan` decides what happens next; both are pure. `journal` and `logfile` are the
job's files, `shim`, `process` and `leftovers` its processes; `runner` carries one job through them. `jobs` is the set
of jobs of this agent, `service` and `watching` speak gRPC, `pack` makes the one-file program.

The agent imports the standard library, grpclib and protobuf only, and PyYAML where a definition is not JSON.
"""
