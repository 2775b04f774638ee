"""Mistakes of a pipeline file shown in its text: the line, and a caret under the place. Pure.

Decided here: how a mistake reads to a person. The first line is `str(mistake)`, which editors and scripts know how to
find a place by; the excerpt follows where the text of the file is at hand. `remuda pipeline` and `remuda run` call it.
"""

import re
from collections.abc import Mapping, Sequence

from remuda.cli.render.columns import width
from remuda.pipeline import Mistake

SHOWN_COLUMNS = 100
"""How much of a long line is shown."""

# As YAML counts lines.
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def described(mistakes: Sequence[Mistake], texts: Mapping[str, str]) -> list[str]:
    """All mistakes, line by line. `texts`: the files by the names that mistakes call them."""
    lines: dict[str, list[str]] = {}
    shown: list[str] = []
    for mistake in mistakes:
        shown.append(str(mistake))
        if mistake.file in texts:
            if mistake.file not in lines:
                lines[mistake.file] = _BREAK.split(texts[mistake.file].removeprefix("\ufeff"))
            shown += excerpt(lines[mistake.file], mistake.line, mistake.column)
    return shown


def excerpt(lines: Sequence[str], line: int, column: int) -> list[str]:
    """The line with its number, and the caret below it; nothing where there is no such line, or it is blank."""
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    if not text.strip():
        return []
    text = "".join(each if each.isprintable() else " " for each in text)
    at = min(max(column - 1, 0), len(text))
    # A part of a long line, the caret's place well inside it.
    start = max(0, at - SHOWN_COLUMNS // 2) if len(text) > SHOWN_COLUMNS else 0
    part = text[start : start + SHOWN_COLUMNS]
    before = "…" if start else ""
    after = "…" if start + SHOWN_COLUMNS < len(text) else ""
    number = f"{line:>6} | "
    caret = " " * width(before + part[: at - start]) + "^"
    return [f"{number}{before}{part.rstrip()}{after}", f"{'':>6} | {caret}"]
