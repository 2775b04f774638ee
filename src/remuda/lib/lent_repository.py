"""Mark of a git repository whose objects jobs on the same machine may use in place (git alternates).

The program that sets the mark guarantees that no object is removed from the repository, or from its own alternates,
while a job has its address. A cell sets it if configured, the checkout step looks for it. A separate module, because
the cell and the agent share nothing else here.
"""

LENDS = "remuda-lends"
"""Name of an empty file in the repository."""
