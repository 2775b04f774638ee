"""From a reference to a step's package on this machine: folders, git repositories, registries, bundled packages.

`resolver.Resolver` is the entry point; the engine calls it before a step starts. `language.references` parses
references, and the policy decides about the result of a resolution.
"""
