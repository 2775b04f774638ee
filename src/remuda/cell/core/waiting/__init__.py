"""Decisions about waiting jobs: the reasons why they wait, how long, and which runners they need."""
