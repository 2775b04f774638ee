"""The name of a marker file in a git repository whose objects jobs on the same machine may use in place (git
alternates).

The program that sets the mark guarantees that no object is removed from the repository, or from its own alternates,
while a job uses it. A cell sets the mark if configured, and the checkout step looks for it. This is a separate module,
because cell and agent share only this name.
"""

LENDS = "remuda-lends"
"""Name of an empty file in the repository."""
