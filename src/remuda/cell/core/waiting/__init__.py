"""Decisions about waiting jobs: why they wait, for how long, and for which runners."""
