"""Compiles the job that a server sends (the payload) to the steps that the agent runs."""
