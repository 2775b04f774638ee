"""Decisions about jobs: lifecycle, leases, retries, timeouts, what is kept of them."""
