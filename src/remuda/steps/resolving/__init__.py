"""From a reference to a step's package on this machine: folders, git repositories, registries, what the agent brings.

`resolver.Resolver` is the way in; the engine calls it before a step starts. What a reference means is decided in
`remuda.steps.language.references`, what may run by the policy, after the resolution and on its result.
"""
