"""Moves jobs from waiting to ended: hand-out to runners, runners' calls, users' commands, timeouts, explanations."""
