"""Turns a reference to a step into a package of files on this machine: from a folder, git, an image registry, or the
packages that come with the agent.

`resolver.Resolver` is the entry point; `steps.engine` calls it before a step starts."""
