"""Logs, metrics and trace spans of all services. Metrics have GitLab's names where GitLab has them."""
