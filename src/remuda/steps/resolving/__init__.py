"""Turns a step reference into a step package on this machine: from folders, git repositories, registries, bundled
packages.

`resolver.Resolver` is the entry point; the engine calls it before a step starts. `language.references` parses
references, and the step policy decides whether the resolved package may run.
"""
