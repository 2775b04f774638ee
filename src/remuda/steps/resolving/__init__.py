"""Turns a step reference into a package on this machine: from folders, git, registries or bundled packages.

`resolver.Resolver` is the entry point; the engine calls it before a step starts.
"""
