"""Text in columns, as wide as a terminal shows it. Pure.

Decided here: how wide a text is (East Asian characters and emoji take two columns, combining marks none), how a table
is laid out, and how a text that is too long is cut.
"""

import unicodedata
from collections.abc import Sequence

GAP = "  "


def width(text: str) -> int:
    """How many columns a text without control characters takes."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def padded(text: str, columns: int) -> str:
    """The text with blanks up to a width."""
    return text + " " * (columns - width(text))


def cut(text: str, columns: int) -> str:
    """The text, shortened to a width with an ellipsis."""
    if width(text) <= columns:
        return text
    taken = 0
    for index, character in enumerate(text):
        taken += _width(character)
        if taken > columns - 1:
            return text[:index] + "…"
    return text


def laid_out(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equal length as lines, each column as wide as its widest cell, empty columns left out."""
    if not rows:
        return []
    widths = [max(width(row[number]) for row in rows) for number in range(len(rows[0]))]
    return [GAP.join(padded(cell, w) for cell, w in zip(row, widths, strict=True) if w).rstrip() for row in rows]
