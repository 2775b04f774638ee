"""The bare repositories of a cell, and the `git` programs that work on them."""
