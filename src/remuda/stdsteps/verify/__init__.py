"""The step `verify`: checks files against the attestation that `sign` wrote."""
