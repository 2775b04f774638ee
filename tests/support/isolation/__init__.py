"""What a hostile job may try, and what each way of running jobs promises against it; `tests/system/isolation` runs it.

`promises` is the one table of promises and modes. `belongings` is what a job has that others may want, `hostile` the
program of the job that goes for it: both run inside jobs, with the system's Python and nothing of Remuda. `scene` sets
up cell, manager, agent and jobs in one mode and gathers what happened.
"""
