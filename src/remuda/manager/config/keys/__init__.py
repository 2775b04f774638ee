"""Says for every key of `config.toml` whether it works, differs, is ignored or refused. The loader, `remuda manager
doctor` and the docs use this table."""
