"""The step runner: an agent in the job's environment that runs steps, and keeps logs and results for its clients.

Folders, each importing only those after it: `agent` (server, gRPC calls, shells), `engine` (execution of a job),
`delegation` (steps that another agent runs) and `policy` (which steps may run, within which limits), `job_files` (files
on disk), `job_tree` (the tree of steps, without I/O), `resolving` (finds packages), `process` (processes, pipes,
control groups), `pack` (the one-file program), `language` (definitions and expressions). Apart from `remuda.lib` and
`remuda.wire` the agent imports only the standard library, grpclib and protobuf, and PyYAML for a definition that is not
JSON."""
