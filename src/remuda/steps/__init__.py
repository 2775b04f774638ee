"""The step runner: an agent in the job's environment that runs steps, and keeps logs and results until fetched.

Folders, each importing only those below it: `agent` (server, calls, shells), `engine` (execution of a job and its
steps), `delegation` (steps that another agent runs) and `policy` (which steps may run, within which limits),
`job_files` (what is on the disk), `job_tree` (the tree of steps and what follows next, pure), `resolving` (from a
reference to a package), `process` (processes, pipes, control groups), `pack` (the one-file program), `language`
(definitions and expressions).

The agent imports the standard library, grpclib and protobuf only, and PyYAML where a definition is not JSON.
"""
