"""The step `verify`."""
