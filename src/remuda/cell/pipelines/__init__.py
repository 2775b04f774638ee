"""Creates pipelines (for pushes, API requests, schedules, trigger jobs); reads coverage, test reports, releases."""
