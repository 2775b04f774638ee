"""Builds images of functions (steps), and publishes them to a registry."""
