"""Logs, metrics and spans of the services. Names of metrics are GitLab's where GitLab has them, so dashboards keep working."""
