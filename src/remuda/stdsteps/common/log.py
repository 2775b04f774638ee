"""Lines for the job's log."""

import sys


def say(text: str) -> None:
    """One line, at once, so that it stands in order with what child processes print."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
