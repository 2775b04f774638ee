"""The step `sign`."""
