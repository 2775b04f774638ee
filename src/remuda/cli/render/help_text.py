"""Turns the docstring of a command into its help text. A separate module, because only --help needs it. Pure."""

import inspect


def join_lines(docstring: str) -> str:
    """Join the lines of each paragraph, so that the help wraps at the width of the terminal. Indented paragraphs, which
    are examples, keep their lines."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(each if each.startswith(" ") else " ".join(each.splitlines()) for each in paragraphs)
