"""The name of a marker file in a git repository whose objects jobs on this machine may use in place (git alternates).

Whoever creates it guarantees that no object is removed while a job uses it. This is a separate module, because
`localrun`, which creates the file, and the checkout step, which looks for it, share only this name."""

LENDS = "remuda-lends"
"""Name of an empty file in the repository."""
