"""Matches the file patterns of `rules:changes`, `rules:exists`, `include:local` and `cache:key:files`.

`*` and `?` match within one folder, `**` spans folders, `[abc]` is a set of characters and `{a,b}` are alternatives.
Names that begin with a dot are not special. Matching does not backtrack, so that a pattern with many stars is not slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

MAX_ALTERNATIVES = 100

_WILD = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")


def is_glob(text: str) -> bool:
    return _WILD.search(text) is not None


class Glob:
    """A compiled file pattern. `literal` is the path if the pattern has no wildcards, else None."""

    def __init__(self, pattern: str) -> None:
        pattern = pattern.removeprefix("./").lstrip("/")
        self.literal = None if is_glob(pattern) else pattern
        self._rows = [] if self.literal is not None else [row.split("/") for row in _alternatives(pattern)]

    def fits(self, path: str) -> bool:
        if self.literal is not None:
            return path == self.literal
        names = path.split("/")
        return any(_fits(row, names) for row in self._rows)


def match_paths(patterns: Iterable[str], paths: Iterable[str]) -> list[str]:
    """Return the paths that match any of the patterns, in the order of `paths`."""
    globs = [Glob(pattern) for pattern in patterns]
    return [path for path in paths if any(glob.fits(path) for glob in globs)]


def normal_path(text: str) -> str | None:
    """Resolve `.` and `..` in a path of the repository; None if it leaves the repository."""
    names: list[str] = []
    for name in text.split("/"):
        if name == "..":
            if not names:
                return None
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return "/".join(names)


def _alternatives(pattern: str) -> list[str]:
    """Expand `a/{b,c}` to `a/b` and `a/c`. Of more than `MAX_ALTERNATIVES` results the rest is silently left out."""
    done: list[str] = []
    waiting = [pattern]
    while waiting and len(done) < MAX_ALTERNATIVES:
        text = waiting.pop()
        braces = _BRACES.search(text)
        if braces is None:
            done.append(text)
        elif len(waiting) < MAX_ALTERNATIVES:
            waiting += [text[: braces.start()] + each + text[braces.end() :] for each in braces[1].split(",")]
    return done


def _fits(parts: list[str], names: list[str]) -> bool:
    """True if a path, split into `names`, matches a pattern, split into `parts`. `**` matches any folders; at the end
    it needs at least one name."""
    # reached[i]: the parts so far match the first i names.
    reached = [True] + [False] * len(names)
    for index, part in enumerate(parts):
        if part == "**":
            if index == len(parts) - 1:
                # `a/**` matches what is in the folder, not the folder.
                return any(reached[:-1])
            for position in range(1, len(names) + 1):
                reached[position] = reached[position] or reached[position - 1]
            continue
        expression = _name(part)
        following = [False] * (len(names) + 1)
        for position, name in enumerate(names):
            if reached[position] and expression.fullmatch(name):
                following[position + 1] = True
        reached = following
    return reached[-1]


@lru_cache(maxsize=1000)
def _name(part: str) -> re.Pattern[str]:
    """Compile the pattern of one file or folder name. Atomic groups prevent backtracking: the text between two stars
    matches only at its first occurrence."""
    chunks: list[str] = [""]
    index = 0
    while index < len(part):
        character = part[index]
        end = part.find("]", index + 2) if character == "[" else -1
        if character == "*":
            chunks.append("")
        elif character == "?":
            chunks[-1] += "."
        elif end > 0:
            inner = part[index + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            negated = inner[:1] in ("!", "^")
            chunks[-1] += f"[{'^' if negated else ''}{inner[1:] if negated else inner}]"
            index = end
        else:
            chunks[-1] += re.escape(character)
        index += 1
    middle = "".join(f"(?>.*?{chunk})" for chunk in chunks[1:-1] if chunk)
    ending = f".*{chunks[-1]}" if len(chunks) > 1 else ""
    try:
        return re.compile(f"{chunks[0]}{middle}{ending}", re.DOTALL)
    except re.error:
        return re.compile(re.escape(part))
