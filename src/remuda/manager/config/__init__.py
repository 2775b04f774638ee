"""Reads, checks, edits and explains the manager's configuration: gitlab-runner's `config.toml` with Remuda's
sections."""
