"""The step `secrets`: exports secrets from Vault, from files or from variables to later steps."""
