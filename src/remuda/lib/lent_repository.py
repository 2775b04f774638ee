"""The name of a marker file in a git repository whose objects jobs on this machine may use in place (alternates).

Who sets the mark guarantees that no object is removed from the repository while a job uses it. This is a separate
module, because `localrun`, which sets the mark, and the checkout step, which reads it, share only this name.
"""

LENDS = "remuda-lends"
"""Name of an empty file in the repository."""
