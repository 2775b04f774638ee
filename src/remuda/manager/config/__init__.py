"""Reads, checks, edits and explains `config.toml`: gitlab-runner's configuration file, with Remuda's own sections."""
