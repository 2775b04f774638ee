"""Runs jobs, from their receipt to their end: journal, connections to agents, recovery after a crash, shells."""
