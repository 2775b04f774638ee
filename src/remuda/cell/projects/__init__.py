"""Projects, groups, refs, and tokens for the container registry."""
