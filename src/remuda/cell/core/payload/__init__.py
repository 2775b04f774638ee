"""Decisions about the payload that a runner gets with a job: variables, secrets, identity tokens, step policies."""
