"""Versions and version ranges in policies: `>=1.2,<2`, `1.2` (every 1.2.x), `!=1.4.0`. No I/O.

Versions are ordered like semantic versions; a leading v is ignored, missing parts count as 0. Names like `latest` are
in no range."""

import re

_VERSION = re.compile(r"v?(\d+(?:\.\d+){0,3})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII)
_TERM = re.compile(r"\s*(>=|<=|==|!=|>|<|=)?\s*(\S+)\s*")

Key = tuple[tuple[int, ...], tuple[tuple[int, int, str], ...]]


def sort_key(text: str) -> Key | None:
    """Return the key by which versions are ordered; None if the text is not a version."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        return None
    numbers = tuple(int(part) for part in match[1].split("."))
    # A release sorts after its pre-releases, and in those numbers before words.
    before = ((2, 0, ""),) if match[2] is None else tuple(_part(part) for part in match[2].split("."))
    return numbers + (0,) * (4 - len(numbers)), before


def check_range(text: str) -> str | None:
    """Return an error message if a version range is invalid, else None."""
    for term in text.split(","):
        match = _TERM.fullmatch(term)
        if match is None or sort_key(match[2]) is None:
            return f"{term.strip()!r} is not a version; write for example >=1.2,<2"
    return None


def is_within(version: str, text: str) -> bool:
    """True if `version` is in the range `text`, which must be valid (`check_range`)."""
    key = sort_key(version)
    return key is not None and all(_fits(key, term) for term in text.split(","))


def _fits(key: Key, term: str) -> bool:
    match = _TERM.fullmatch(term)
    other = sort_key(match[2]) if match else None
    if match is None or other is None:
        return False
    match match[1]:
        case ">=":
            return key >= other
        case ">":
            return key > other
        case "<=":
            return key <= other
        case "<":
            return key < other
        case "!=":
            return key != other
        case "==" | "=":
            return key == other
    written = len(match[2].lstrip("v").split("-")[0].split("."))
    return key[0][:written] == other[0][:written] and (key[1] == other[1] or "-" not in match[2])


def _part(text: str) -> tuple[int, int, str]:
    return (0, int(text), "") if text.isdigit() else (1, 0, text)
