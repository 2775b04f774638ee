"""The isolation suite: attacks of a hostile job, and what each mode of running jobs promises against them.

`isolation_table` is the table of promises and modes. `job_resources` creates files, processes and sockets of a job that
other jobs may attack, and `hostile` is the program of the hostile job: both run inside jobs, with the system's Python
and without Remuda's packages. `isolation_system` starts cell, manager, agent and jobs in one mode and collects the
results. `tests/system/isolation` runs the suite.
"""
