"""Reads, checks, edits and explains the manager's configuration: `config.toml` of gitlab-runner, and Remuda's
sections."""
