"""Encryption of secrets in the store, and the keys that sign job tokens."""
