"""Folds the white space of texts."""

import re


def fold(text: str, *, keep_lines: bool = False) -> str:
    """Runs of white space become one space; with `keep_lines`, line ends stay."""
    if not keep_lines:
        return " ".join(text.split())
    return "\n".join(fold(line) for line in text.splitlines())


def is_folded(text: str) -> bool:
    """Whether folding would change nothing."""
    return re.search(r"^\s|\s$|[^\S ]|  ", text) is None
