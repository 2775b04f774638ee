"""Turns the unified diff of a file into rows with line numbers, for the pages of commits and comparisons."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

MAX_ROWS = 3000
"""Rows that a page shows of all files together. The rest is only counted: nobody reads more in a browser."""
_PLACE = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})(?:,\d+)? @@")
_KINDS = {"+": "added", "-": "removed", " ": "same"}


class Row(msgspec.Struct, frozen=True):
    """A row of a difference. `kind`: added, removed, same, place (where a piece begins) or note."""

    kind: str
    old: int | None
    """Number of the line in the old file; None for an added line."""
    new: int | None
    text: str


class FileRows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one file. `is_cut`: some are left out, because the page has enough."""

    file: Mapping[str, Any]
    rows: Sequence[Row]
    added: int
    removed: int
    is_cut: bool


def parse_rows(diff: str) -> Iterator[Row]:
    """Yield the rows of a unified diff that begins with `@@` or `Binary files`."""
    old = new = 0
    # Only \n ends a line: other separators of `splitlines` are part of a line for git.
    for line in diff.removesuffix("\n").split("\n") if diff else []:
        kind = _KINDS.get(line[:1])
        if match := _PLACE.match(line):
            old, new = int(match[1]), int(match[2])
            yield Row("place", None, None, line)
        elif kind is None:
            yield Row("note", None, None, line.removeprefix("\\ "))
        else:
            yield Row(kind, None if kind == "added" else old, None if kind == "removed" else new, line[1:])
            old += kind != "added"
            new += kind != "removed"


def read_files(files: Sequence[Mapping[str, Any]], most_rows: int = MAX_ROWS) -> list[FileRows]:
    """Return the rows of the files of a difference, at most `most_rows` together."""
    result = []
    left = most_rows
    for file in files:
        rows = list(parse_rows(file["diff"]))
        shown = rows[: max(left, 0)]
        left -= len(shown)
        result.append(
            FileRows(
                file=file,
                rows=shown,
                added=sum(row.kind == "added" for row in rows),
                removed=sum(row.kind == "removed" for row in rows),
                is_cut=len(shown) < len(rows),
            )
        )
    return result
