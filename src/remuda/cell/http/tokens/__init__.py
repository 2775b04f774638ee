"""Endpoints of tokens in GitLab's form: personal tokens, access tokens of projects and groups, deploy tokens."""
