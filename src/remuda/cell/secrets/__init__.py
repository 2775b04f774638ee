"""Encrypts secrets in the database, and manages the encryption keys and the keys that sign job tokens."""
