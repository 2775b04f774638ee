"""The step `secrets`: values from a Vault, from files or from variables."""
