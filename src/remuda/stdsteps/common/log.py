"""Writes lines of a standard step to the job log."""

import sys


def say(text: str) -> None:
    """Write one line to the job log and flush, so that it stays in order with the output of child processes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
