"""The configuration: gitlab-runner's `config.toml` with Remuda's own sections. Read, checked, changed, explained."""
