r"""Splits a text into literal parts and `${{ ... }}` expressions. `\${{` is a literal `${{`, a lone `}}` plain text."""

from functools import lru_cache

from remuda.lib.dataclass import dataclass
from remuda.steps.language.escaping import OPENER
from remuda.steps.language.syntax import Node, parse_embedded

_LARGEST_CACHED = 4096


@dataclass(frozen=True, slots=True)
class Hole:
    """An expression `${{ ... }}` in a text: its syntax tree, its source text, and its line."""

    tree: Node
    source: str
    line: int = 0
    """Its line in a text of several lines, from 1 on; 0 if the text has only one line."""


Parts = tuple[str | Hole, ...]


def parse_template(text: str) -> Parts:
    """Split a text into strings (not empty, never adjacent) and expressions. Raises ExpressionError if invalid."""
    if OPENER not in text:
        return (text,) if text else ()
    return _parse_cached(text) if len(text) <= _LARGEST_CACHED else _parse(text)


def _parse(text: str) -> Parts:
    parts: list[str | Hole] = []
    plain: list[str] = []
    done = 0
    line = 1 if "\n" in text else 0
    while (opener := text.find(OPENER, done)) >= 0:
        if line:
            line += text.count("\n", done, opener)
        if opener > done and text[opener - 1] == "\\":
            plain.append(text[done : opener - 1] + OPENER)
            done = opener + len(OPENER)
            continue
        plain.append(text[done:opener])
        if before := "".join(plain):
            parts.append(before)
        plain.clear()
        tree, done = parse_embedded(text, opener)
        parts.append(Hole(tree, text[opener:done], line))
        if line:
            line += text.count("\n", opener, done)
    plain.append(text[done:])
    if rest := "".join(plain):
        parts.append(rest)
    return tuple(parts)


_parse_cached = lru_cache(maxsize=512)(_parse)
