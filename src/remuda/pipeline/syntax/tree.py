"""The tree of a pipeline file: values with their file, line and column. Maps can be merged, nodes converted.

Invariant: nodes are immutable, so that aliases, templates and references may share them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from remuda.pipeline.errors import Placed, Report

MAX_MERGED = 500_000

Kind = Literal["text", "number", "true", "false", "null"]


class Scalar(msgspec.Struct, frozen=True, kw_only=True):
    """A single value (text, number, boolean or null), with its text as written in the file."""

    text: str
    kind: Kind
    line: int
    column: int
    file: str = ""


class Items(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Node, ...]
    line: int
    column: int
    file: str = ""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A YAML map by the text of its keys. Names must be checked: a key can be a number or null (`Entry.key.kind`)."""

    entries: dict[str, Entry]
    line: int
    column: int
    file: str = ""


class Opaque(msgspec.Struct, frozen=True, kw_only=True):
    """Stands for an invalid value whose mistake is already reported. Code that reads the tree skips it."""

    line: int
    column: int
    file: str = ""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A `!reference` tag, before it is replaced by the value at `path`."""

    path: tuple[str, ...]
    line: int
    column: int
    file: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    key: Scalar
    value: Node


Node = Scalar | Items | Table | Opaque | Reference


class Merger:
    """Merges maps. More than `MAX_MERGED` entries in all merges stop the compilation: templates multiply them."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._work = 0

    def merge(self, *tables: Table) -> Table:
        """Merge maps recursively; other values are taken from the latest map, and so is the position of the result."""
        entries: dict[str, Entry] = {}
        for table in tables:
            self._work += len(table.entries)
            if self._work > MAX_MERGED:
                message = f"the merged files and templates have more than {MAX_MERGED} values"
                self._report.stop(table, "", message, "extend smaller templates")
            for name, entry in table.entries.items():
                below = entries.get(name)
                if below is not None and isinstance(below.value, Table) and isinstance(entry.value, Table):
                    entry = Entry(key=entry.key, value=self.merge(below.value, entry.value))
                entries[name] = entry
        last = tables[-1]
        return Table(entries=entries, line=last.line, column=last.column, file=last.file)


def node_of(value: object, at: Placed) -> Node:
    """Convert JSON-like data to a node of the tree; all parts of it get the position `at`."""
    place: Any = {"line": at.line, "column": at.column, "file": at.file}
    match value:
        case bool():
            return Scalar(text=str(value).lower(), kind="true" if value else "false", **place)
        case int() | float():
            return Scalar(text=str(value), kind="number", **place)
        case list() | tuple():
            return Items(items=tuple(node_of(item, at) for item in value), **place)
        case dict():
            return Table(
                entries={
                    str(name): Entry(key=Scalar(text=str(name), kind="text", **place), value=node_of(each, at))
                    for name, each in value.items()
                },
                **place,
            )
        case None:
            return Scalar(text="", kind="null", **place)
        case _:
            return Scalar(text=str(value), kind="text", **place)


def items_of(node: Node) -> tuple[Node, ...]:
    """Return the items of a list node; for any other node, a tuple with only that node."""
    return node.items if isinstance(node, Items) else (node,)


def flatten(node: Node) -> Iterator[Node]:
    """Yield the items of a list and of the lists nested in it, in order."""
    for item in items_of(node):
        if isinstance(item, Items):
            yield from flatten(item)
        else:
            yield item


def plain(node: Node) -> object:
    """Convert a node to JSON-like data. A number that is not finite and decimal stays text."""
    match node:
        case Table():
            return {name: plain(entry.value) for name, entry in node.entries.items()}
        case Items():
            return [plain(item) for item in node.items]
        case Scalar(kind="text"):
            return node.text
        case Scalar(kind="number"):
            return number(node.text)
        case Scalar(kind="true") | Scalar(kind="false"):
            return node.kind == "true"
        case _:
            return None


def number(text: str) -> int | float | str:
    """Convert a YAML number; the text itself if it is not a finite decimal number (`.inf`, `0x1f`)."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text.replace(",", "_"))
    except ValueError:
        return text
    return value if value - value == 0 else text
