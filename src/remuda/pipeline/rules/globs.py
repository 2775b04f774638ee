"""Matches the file patterns of a pipeline file, of which there are two kinds.

`Glob` is for `rules:changes`, `rules:exists` and `cache:key:files`, with the rules of Ruby's `File.fnmatch` as GitLab
calls it: `*` and `?` match within one folder, `**/` any folders (so `docs/**` is one level), `[abc]` is a set of
characters, `{a,b}` are alternatives, and a backslash makes the next character plain. Names that begin with a dot are
not special.

`match_paths` is for `include:local`, with GitLab's own rule: `**` is any text and `*` any text without a slash.

Matching does not backtrack, so that a pattern with many stars is not slow."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

MAX_ALTERNATIVES = 100

_WILD = re.compile(r"[*?\[{\\]")
_SET = re.compile(r"\[(?P<not>[!^]?)(?P<inner>(?:\\.|[^\]\\]|(?<=\[)\]|(?<=\[[!^])\])+)\]")
_STARS = re.compile(r"\*\*|\*")


class Glob:
    """A compiled file pattern. `literal` is the path if the pattern has no wildcards, else None."""

    def __init__(self, pattern: str) -> None:
        self.literal = None if _WILD.search(pattern) else pattern
        self._rows = [] if self.literal is not None else [row.split("/") for row in _alternatives(pattern)]

    def fits(self, path: str) -> bool:
        if self.literal is not None:
            return path == self.literal
        names = path.split("/")
        return any(_fits(row, names) for row in self._rows)


def is_include_glob(path: str) -> bool:
    """True if the path of an include is a pattern."""
    return "*" in path


def match_paths(pattern: str, paths: Iterable[str]) -> list[str]:
    """Return the paths that match the pattern of an include, in the order of `paths`."""
    import re2

    parts: list[str] = []
    end = 0
    for stars in _STARS.finditer(pattern):
        parts += (re2.escape(pattern[end : stars.start()]), ".*" if stars[0] == "**" else "[^/]*")
        end = stars.end()
    options = re2.Options()
    options.dot_nl = True
    options.log_errors = False
    try:
        expression = re2.compile("".join([*parts, re2.escape(pattern[end:])]), options)
    except re2.error:
        return []
    return [path for path in paths if expression.fullmatch(path.encode(errors="replace").decode())]


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
        braces = _find_braces(text)
        if braces is None:
            done.append(text)
        elif len(waiting) < MAX_ALTERNATIVES:
            start, end, choices = braces
            waiting += [text[:start] + each + text[end:] for each in choices]
    return done


def _find_braces(text: str) -> tuple[int, int, list[str]] | None:
    """Find the first `{...}` with its partner: where it begins and ends, and the alternatives, which may have further
    braces. None if there is none. A backslash hides the next character."""
    depth, start, piece = 0, 0, 0
    choices: list[str] = []
    index = 0
    while index < len(text):
        character = text[index]
        if character == "\\":
            index += 1
        elif character == "{":
            depth += 1
            if depth == 1:
                start, piece, choices = index, index + 1, []
        elif depth and character in ",}":
            if depth == 1:
                choices.append(text[piece:index])
                piece = index + 1
            if character == "}":
                depth -= 1
                if not depth:
                    return start, index + 1, choices
        index += 1
    return None


def _fits(parts: list[str], names: list[str]) -> bool:
    """True if a path, split into `names`, matches a pattern, split into `parts`. `**` matches any folders; as the last
    part it is like `*`."""
    # reached[i]: the parts so far match the first i names.
    reached = [True] + [False] * len(names)
    for index, part in enumerate(parts):
        if part == "**" and index < len(parts) - 1:
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
        characters = _SET.match(part, index) if character == "[" else None
        if character == "*":
            chunks.append("")
        elif character == "?":
            chunks[-1] += "."
        elif characters:
            inner = characters["inner"].replace("[", "\\[").replace("&&", "&\\&").replace("||", "|\\|")
            chunks[-1] += f"[{'^' if characters['not'] else ''}{inner}]"
            index = characters.end() - 1
        elif character == "\\" and index + 1 < len(part):
            index += 1
            chunks[-1] += re.escape(part[index])
        else:
            chunks[-1] += re.escape(character)
        index += 1
    middle = "".join(f"(?>.*?{chunk})" for chunk in chunks[1:-1] if chunk)
    ending = f".*{chunks[-1]}" if len(chunks) > 1 else ""
    try:
        return re.compile(f"{chunks[0]}{middle}{ending}", re.DOTALL)
    except re.error:
        return re.compile(re.escape(part))
