"""Settings files: defaults for the options of `remuda run`, of a repository (`.remuda.toml`) and of a user."""
