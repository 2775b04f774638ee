"""Shells into running jobs and jobs on hold, between people and runner managers."""
