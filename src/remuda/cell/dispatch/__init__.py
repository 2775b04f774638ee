"""Moves jobs from waiting to ended: hand-out, calls of runners, commands of users, timeouts; explains their state."""
