"""Repositories over HTTP: git's smart protocol, and GitLab's API for files, commits, branches and tags."""
