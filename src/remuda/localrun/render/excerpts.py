"""Formats the mistakes of a pipeline file with an excerpt: the line, and a caret under the column. Pure. The first line
of each mistake is `FILE:LINE:COLUMN: TEXT`, which editors and scripts can parse."""

import re
from collections.abc import Mapping, Sequence

from remuda.localrun.render.columns import width
from remuda.pipeline import Mistake

SHOWN_COLUMNS = 100
"""How much of a long line is shown."""

# The line breaks of YAML.
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def describe_mistakes(mistakes: Sequence[Mistake], texts: Mapping[str, str], *, severity: str = "") -> list[str]:
    """Format mistakes as lines with excerpts of `texts`: the contents of the files by file name. `severity`: a word
    that each message begins with, such as `warning`."""
    file_lines: dict[str, list[str]] = {}
    output: list[str] = []
    for mistake in mistakes:
        output.append(mistake.describe(severity))
        if mistake.file in texts:
            if mistake.file not in file_lines:
                file_lines[mistake.file] = _BREAK.split(texts[mistake.file].removeprefix("\ufeff"))
            output += excerpt(file_lines[mistake.file], mistake.line, mistake.column)
    return output


def excerpt(lines: Sequence[str], line: int, column: int) -> list[str]:
    """Return a line of a file with its number, and below it a caret at the column; both count from 1. Empty if the line
    does not exist or is blank."""
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    if not text.strip():
        return []
    text = "".join(each if each.isprintable() else " " for each in text)
    index = min(max(column - 1, 0), len(text))
    # Of a long line, the part around the caret.
    start = max(0, index - SHOWN_COLUMNS // 2) if len(text) > SHOWN_COLUMNS else 0
    part = text[start : start + SHOWN_COLUMNS]
    before = "…" if start else ""
    after = "…" if start + SHOWN_COLUMNS < len(text) else ""
    number = f"{line:>6} | "
    caret = " " * width(before + part[: index - start]) + "^"
    return [f"{number}{before}{part.rstrip()}{after}", f"{'':>6} | {caret}"]
