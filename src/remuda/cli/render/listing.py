"""Prints responses of a cell or a manager: tables, lists of facts, JSON, times. Used by many commands."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit

from remuda.cli.render.colors import color_status, has_colors
from remuda.localrun.render.columns import GAP, align, pad, width
from remuda.localrun.render.words import duration, on_one_line

Columns = Mapping[str, str | Callable[[Mapping[str, Any]], object]]
"""Headings of a table, each with the key of its value in an entry, or a function that makes the value."""
COLORED = frozenset({"status", "state"})
"""Headings of columns in which statuses are coloured on a terminal."""


def print_json(value: object) -> None:
    import msgspec  # most commands have imported it by now

    print(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False))


def print_table(table: Sequence[tuple[str, ...]]) -> None:
    """Print rows with aligned columns; the first row has the headings. Columns without any text are left out."""
    rows = [tuple(map(on_one_line, row)) for row in table]
    if not rows or not has_colors(sys.stdout):
        for line in align(rows):
            print(line)
        return
    colored = {number for number, heading in enumerate(rows[0]) if heading in COLORED}
    widths = [max(width(row[number]) for row in rows) for number in range(len(rows[0]))]
    for index, row in enumerate(rows):
        cells = [
            color_status(pad(cell, size)) if index and number in colored else pad(cell, size)
            for number, (cell, size) in enumerate(zip(row, widths, strict=True))
            if size
        ]
        print(GAP.join(cells).rstrip())


def print_list(entries: Sequence[Mapping[str, Any]], columns: Columns, output: str, *, nothing: str) -> None:
    """Print entries of the cell as a table without its empty columns, or unchanged as JSON. `nothing`: what to say if
    there are no entries."""
    if output == "json":
        print_json(entries)
    elif not entries:
        print(nothing)
    else:
        cells = {name: [_text(entry, value) for entry in entries] for name, value in columns.items()}
        shown = {name: texts for name, texts in cells.items() if any(texts)}
        print_table([tuple(shown), *zip(*shown.values(), strict=True)])


def print_facts(title: str, entry: Mapping[str, Any], facts: Columns, output: str) -> None:
    """Print an object of the cell as a title and each fact that is not empty, or unchanged as JSON. Further lines of a
    fact are indented like its first."""
    if output == "json":
        print_json(entry)
        return
    texts = {name: text for name, value in facts.items() if (text := _text(entry, value))}
    size = max(map(len, texts), default=0)
    print(on_one_line(title))
    for name, text in texts.items():
        for heading, line in zip_longest((name,), text.splitlines(), fillvalue=""):
            shown = on_one_line(line)
            colored = color_status(shown) if name in COLORED and has_colors(sys.stdout) else shown
            print(f"  {heading:<{size}}  {colored}")


def print_change(changed: object, words: str, output: str) -> None:
    """Print what a command has changed: in words, or as the cell's answer in JSON."""
    if output == "json":
        print_json(changed)
    else:
        print(on_one_line(words))


def _text(entry: Mapping[str, Any], value: str | Callable[[Mapping[str, Any]], object]) -> str:
    content = entry.get(value) if isinstance(value, str) else value(entry)
    match content:
        case None | False:
            return ""
        case True:
            return "yes"
        case list() | tuple():
            return ", ".join(map(str, content))
        case _:
            return str(content)


def project_of(url: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that shows the project's path of a job or pipeline, from the address of its page. `url`: the
    address of the cell, whose path precedes that of the project."""
    prefix = f"{urlsplit(url).path.strip('/')}/".removeprefix("/")

    def show(entry: Mapping[str, Any]) -> str:
        address = str(entry.get("web_url") or "").partition("/-/")[0]
        return "/".join(address.split("/")[3:]).removeprefix(prefix)

    return show


def at(key: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that shows the time under a key of an entry."""
    return lambda entry: local_time(entry.get(key))


def duration_text(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def local_time(at: str | float | None) -> str:
    if not at:
        return ""
    time = datetime.fromisoformat(at) if isinstance(at, str) else datetime.fromtimestamp(at, UTC)
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
