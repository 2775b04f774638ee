"""What becomes of every key of gitlab-runner's `config.toml`: one table for the reader, the doctor and the docs."""
