"""The runner manager: asks for jobs it has room for, has the agent run them, relays logs and results, loses none.

`core/` decides, `jobs.py` and `polling.py` act, `service.py` supervises. It speaks to cells (or a GitLab server) and to
agents only over the wire; what lets a new process go on where a dead one stopped stands in `journal.py`.
"""
