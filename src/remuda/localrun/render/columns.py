"""Measures, pads and cuts text by its columns on a terminal: East Asian characters and emoji take two. Pure."""

import unicodedata
from collections.abc import Sequence

GAP = "  "


def width(text: str) -> int:
    """Return the number of terminal columns of a text without control characters."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def pad(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def cut(text: str, columns: int) -> str:
    """Shorten a text with more than `columns` columns to this width, with an ellipsis at the end."""
    if width(text) <= columns:
        return text
    used = 0
    for index, character in enumerate(text):
        used += _width(character)
        if used > columns - 1:
            return text[:index] + "…"
    return text


def shorten(text: str, columns: int) -> str:
    """Shorten a text with more than `columns` columns to this width, with an ellipsis in the middle: names of parallel
    jobs differ at their end."""
    if width(text) <= columns:
        return text
    head = cut(text, (columns + 1) // 2).removesuffix("…")
    tail, room = "", columns - width(head) - 1
    for character in reversed(text):
        if width(character + tail) > room:
            break
        tail = character + tail
    return f"{head}…{tail}"


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows of equal length as a table with aligned columns; columns without any text are left out."""
    if not rows:
        return []
    widths = [max(width(row[number]) for row in rows) for number in range(len(rows[0]))]
    return [GAP.join(pad(cell, w) for cell, w in zip(row, widths, strict=True) if w).rstrip() for row in rows]
