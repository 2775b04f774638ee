"""Processes of steps on this machine: shim, fork server, pipes, control groups, leftover processes."""
