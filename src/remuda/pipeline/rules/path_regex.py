r"""Matches the regular expressions of `changes:regexp` and `exists:regexp` with paths of files.

GitLab matches these two with Ruby's engine and all others with RE2. Here RE2 matches them, too, so that a file cannot
make a server slow. Their main use, files outside of a folder, needs a look-ahead, which RE2 does not have. Therefore
look-aheads directly after an anchor at the beginning, as in `\A(?!docs/)`, become expressions of their own. What else
only Ruby knows raises `UnsupportedError`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from remuda.pipeline.rules.regex import PatternError, Patterns, UnsupportedError

MAX_PATH_REGEX = 255

_FLAGS = "m"
"""In Ruby `^` and `$` always match at the lines of a text."""
_ANCHOR = re.compile(r"\\A|\^")
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_LOOK_AHEAD = ("(?!", "(?=")


class PathRegex:
    """A compiled expression. Raises PatternError if it is invalid, UnsupportedError if only Ruby knows it."""

    def __init__(self, text: str, patterns: Patterns) -> None:
        self._patterns = patterns
        self._parts = _split(text)
        for part, _is_wanted in self._parts:
            patterns.compile(part, _FLAGS)

    def fits_any(self, paths: Iterable[str]) -> bool:
        """True if it matches in one of the paths. Raises TooCostlyError."""
        parts = [(self._patterns.compile(part, _FLAGS), is_wanted) for part, is_wanted in self._parts]
        return any(all(part.is_in(path, self._spend) == is_wanted for part, is_wanted in parts) for path in paths)

    def _spend(self, steps: int) -> None:
        # `steps` is an upper limit, which short texts such as paths do not come near to; but there can be many paths.
        self._patterns.spend(steps // 8 + 100)


def _split(text: str) -> list[tuple[str, bool]]:
    """Return expressions without the look-aheads at the beginning, and for each whether it must match or must not."""
    anchor = _ANCHOR.match(text)
    rest = text[anchor.end() :] if anchor else text
    if anchor is None or not rest.startswith(_LOOK_AHEAD):
        return [(text, True)]
    parts: list[tuple[str, bool]] = []
    while rest.startswith(_LOOK_AHEAD):
        end = _group_end(rest)
        if end is None:
            raise PatternError("a ( without its )", text.index(rest))
        parts.append((f"{anchor[0]}(?:{rest[3 : end - 1]})", rest.startswith("(?=")))
        rest = rest[end:]
    if _has_alternatives(rest):
        raise UnsupportedError("alternatives beside groups that look ahead are not supported", 0)
    return [*parts, (anchor[0] + rest, True)]


def _group_end(text: str) -> int | None:
    """Return the index after the `)` of the group with which the text begins; None if there is no such `)`."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if not depth:
            return token.end()
    return None


def _has_alternatives(text: str) -> bool:
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if not depth and token[0] == "|":
            return True
    return False
