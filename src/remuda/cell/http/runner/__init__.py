"""The Runner API: what runner managers call."""
