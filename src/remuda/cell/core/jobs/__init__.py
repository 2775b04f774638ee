"""Decisions about jobs: state changes, leases (which runner has a job), retries, timeouts, artifacts."""
