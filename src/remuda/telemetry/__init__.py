"""Logs, metrics and spans. Names of metrics are GitLab's where GitLab has them, so dashboards keep working."""
