"""Creates pipelines (for pushes, API requests, schedules, triggers) and releases; reads coverage and test reports."""
