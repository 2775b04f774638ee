"""Moves jobs from waiting to ended: hand-out to runners, calls of runners, commands of users, timeouts,
explanations."""
