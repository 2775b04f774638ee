"""Runners and their tokens on a server: register, verify, unregister, rotate."""
