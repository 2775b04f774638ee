"""Marks folders that a sandbox hides. In the sandbox an empty folder with the mark is mounted over each, so a program
that finds a path missing can tell a deleted file from a hidden one."""

import os

HIDDEN_MARK = ".hidden-in-this-sandbox"
"""Name of the folder that marks a hidden one."""


def is_hidden(path: str) -> bool:
    """True if the absolute `path` is in a folder that the sandbox of this process hides."""
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        if os.path.isdir(os.path.join(path, HIDDEN_MARK)):
            return True
    return False
