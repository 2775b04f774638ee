"""Pipelines: how they start (push, API, schedule, trigger), are compiled, and what they leave (reports, releases)."""
