"""Signatures of artifacts: Ed25519 through `openssl`, and the attestations (in-toto statements) that are signed."""
