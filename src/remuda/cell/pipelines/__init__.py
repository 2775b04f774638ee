"""Creates pipelines (by push, API request, schedule, trigger), and reads their results (coverage, tests, releases)."""
