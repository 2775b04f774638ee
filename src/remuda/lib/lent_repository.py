"""The mark of a git repository that lends its objects to jobs on the same machine.

Whoever sets it promises that nothing is removed from the repository, nor from those it borrows from itself, as long as
there is a job that was given its address. A cell sets it where it is told to, the checkout looks for it.
"""

LENDS = "remuda-lends"
"""A file in the repository; its contents do not matter."""
