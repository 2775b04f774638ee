"""The manager's process: its start, supervision, control socket, status, configuration reload and stop."""
