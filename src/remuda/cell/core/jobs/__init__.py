"""Decisions about jobs: lifecycle, leases, retries, timeouts, artifacts."""
