"""Decisions about pipelines: creation, trigger jobs, schedules, push options, redundant pipelines."""
