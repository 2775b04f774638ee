"""Packages of steps whose names begin with `function/`, as GitLab's step runner calls them."""
