"""Decisions about waiting: why jobs wait, the runners they need, how long requests are held, effects of outages."""
