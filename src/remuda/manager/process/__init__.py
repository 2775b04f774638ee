"""The manager as a process: start, supervision, control socket, status, reload, stop."""
