"""Endpoints of webhooks in GitLab's form."""
