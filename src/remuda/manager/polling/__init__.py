"""Requests jobs from servers: one poller per runner, and the job slots that limit the requests."""
