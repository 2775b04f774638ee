"""Says for every key of `config.toml` whether it works, differs, is ignored or refused."""
