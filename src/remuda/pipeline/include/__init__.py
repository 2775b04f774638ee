"""Implements `include` and `spec:inputs`: which other files belong to a pipeline file, and with which inputs."""
