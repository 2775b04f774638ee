"""Requests for jobs: one poller per runner, and the slots that limit them."""
