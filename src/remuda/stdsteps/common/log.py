"""Writes lines to the job's log."""

import sys


def say(text: str) -> None:
    """Write one line and flush, so that it keeps its order with the output of child processes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
