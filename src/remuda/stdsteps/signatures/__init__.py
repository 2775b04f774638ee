"""Signatures of artifacts: Ed25519 through `openssl`, and the statements that are signed."""
