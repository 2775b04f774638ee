"""Reading one value of an expected type out of the tree, or noting why it is not that.

Decided here: which kinds of values fit which type, and the words of type mistakes. Called by the modules that read
jobs, defaults and variables.

Invariant: a reader that returns None has noted a mistake (or met a value whose mistake is already noted), so
that its caller can go on as if the key were absent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from remuda.pipeline.errors import Report, printable, quote
from remuda.pipeline.syntax.durations import parse_duration
from remuda.pipeline.syntax.known_keys import NOT_YET, Keys, listed, nearest
from remuda.pipeline.syntax.tree import Entry, Items, Node, Opaque, Reference, Scalar, Table

_INTEGER = re.compile(r"[-+]?[0-9]{1,9}", re.ASCII)


def inside(path: str, key: str) -> str:
    """The path of a key as mistakes show it: `build:artifacts:paths`."""
    return f"{path}:{key}" if path else key


def read_table(report: Report, node: Node, path: str, keys: Keys) -> dict[str, Entry]:
    """The entries of a map whose keys work and whose values are not null; all other keys are mistakes."""
    if not isinstance(node, Table):
        mistyped(report, node, path, "a map")
        return {}
    entries: dict[str, Entry] = {}
    for name, entry in node.entries.items():
        if not is_text(entry.key):
            report_name(report, entry.key, path, "a key")
        elif name not in keys.works:
            report_key(report, entry.key, path, keys)
        elif not is_null(entry.value):
            entries[name] = entry
    return entries


def report_name(report: Report, key: Scalar, path: str, what: str) -> None:
    """Note that a key is a number, a boolean or nothing where a name has to stand."""
    where = inside(path, key.text) if key.text else path
    report.add(key, where, f"{what} must be a string{_instead(key)}", f'write it in quotes: "{printable(key.text)}"')


def report_key(report: Report, key: Scalar, path: str, keys: Keys) -> None:
    """Note that a key does not work: because nobody has it, or because it does not work yet."""
    where = inside(path, key.text)
    if key.text in keys.later:
        report.add(key, where, f"the key {quote(key.text)} is not supported yet", NOT_YET)
    else:
        suggestion = nearest(key.text, keys.works + keys.later)
        known = f"known here: {listed(keys.works)}" if keys.works else "remove it"
        report.add(key, where, f"unknown key {quote(key.text)}", suggestion or known)


def read_text(report: Report, node: Node, path: str) -> str | None:
    """A string that is not empty."""
    if not isinstance(node, Scalar) or node.kind != "text":
        mistyped(report, node, path, "a string")
        return None
    if not node.text:
        report.add(node, path, "must not be empty")
        return None
    return node.text


def read_choice(report: Report, node: Node, path: str, choices: Sequence[str]) -> str | None:
    """One of a few words."""
    text = read_text(report, node, path)
    if text is not None and text not in choices:
        suggestion = nearest(text, choices) or f"use one of: {', '.join(choices)}"
        report.add(node, path, f"unknown value {quote(text)}", suggestion)
        return None
    return text


def read_texts(report: Report, node: Node, path: str, keys: Keys, *, need: tuple[str, ...] = ()) -> dict[str, str]:
    """A map whose values are all strings. `need`: keys that must be there."""
    entries = read_table(report, node, path, keys)
    found: dict[str, str] = {}
    for name, entry in entries.items():
        text = read_text(report, entry.value, inside(path, name))
        if text is not None:
            found[name] = text
    if isinstance(node, Table):
        for name in need:
            if name not in entries:
                report.add(node, path, f'has no "{name}"', "give it one")
    return found


def read_flag(report: Report, node: Node, path: str) -> bool | None:
    """A boolean."""
    if isinstance(node, Scalar) and node.kind in ("true", "false"):
        return node.kind == "true"
    mistyped(report, node, path, "true or false")
    return None


def read_integer(report: Report, node: Node, path: str, *, low: int, high: int) -> int | None:
    """A whole number within bounds."""
    if not isinstance(node, Scalar) or node.kind != "number" or not _INTEGER.fullmatch(node.text):
        mistyped(report, node, path, f"a whole number from {low} to {high}")
        return None
    number = int(node.text)
    if not low <= number <= high:
        report.add(node, path, f"must be a whole number from {low} to {high}, not {number}")
        return None
    return number


def read_strings(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """A list of strings; lists inside it are laid flat, which is what makes anchors of lists useful."""
    if not isinstance(node, Items):
        one = isinstance(node, Scalar) and node.kind == "text"
        mistyped(report, node, path, "a list of strings", "put it in a list" if one else "")
        return None
    return tuple(text for item in node.items for text in _flat(report, item, path))


def read_one_or_more(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """A string that is not empty, or a list of strings."""
    if isinstance(node, Items):
        return read_strings(report, node, path)
    text = read_text(report, node, path)
    return None if text is None else (text,)


def read_duration(report: Report, node: Node, path: str, *, also: tuple[str, ...] = ()) -> int | None:
    """A span of time in seconds. The words in `also` are no mistake either and give None."""
    if not isinstance(node, Scalar) or node.kind not in ("text", "number"):
        mistyped(report, node, path, 'a duration such as "1h 30m"')
        return None
    seconds = parse_duration(node.text)
    if not seconds and node.text not in also:
        words = "".join(f', or "{word}"' for word in also)
        report.add(node, path, f"{quote(node.text)} is no duration", f'write it like "1h 30m" or "90 minutes"{words}')
    return seconds or None


def read_numbers(report: Report, node: Node, path: str, *, low: int, high: int) -> tuple[int, ...]:
    """A whole number or a list of them."""
    nodes = node.items if isinstance(node, Items) else (node,)
    read = [read_integer(report, item, path, low=low, high=high) for item in nodes]
    return tuple(value for value in read if value is not None)


def read_script(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """Lines of shell: a string, or a list of strings with lists inside."""
    if isinstance(node, Scalar):
        text = read_text(report, node, path)
        return None if text is None else (text,)
    return read_strings(report, node, path)


def _flat(report: Report, node: Node, path: str) -> tuple[str, ...]:
    if isinstance(node, Items):
        return tuple(text for item in node.items for text in _flat(report, item, path))
    if isinstance(node, Scalar) and node.kind == "text":
        return (node.text,)
    hint = 'a ": " makes it a map: put the whole line in quotes' if isinstance(node, Table) else ""
    mistyped(report, node, path, "a string", hint)
    return ()


def mistyped(report: Report, node: Node, path: str, wanted: str, suggestion: str = "") -> None:
    """Note that a value has the wrong type. An opaque one has its mistake already."""
    if isinstance(node, Opaque):
        return
    if not suggestion and isinstance(node, Scalar) and node.kind not in ("text", "null") and "a string" in wanted:
        suggestion = f'write it in quotes: "{printable(node.text)}"'
    report.add(node, path, f"must be {wanted}{_instead(node)}", suggestion)


def is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.kind == "null"


def is_text(node: Node) -> bool:
    return isinstance(node, Scalar) and node.kind == "text"


def _instead(node: Node) -> str:
    if isinstance(node, Scalar):
        if node.kind == "null":
            return ", but has no value"
        kinds = {"text": "text", "number": "number", "true": "boolean", "false": "boolean"}
        return f", not the {kinds[node.kind]} {quote(node.text)}"
    if isinstance(node, Reference):
        return ", not a !reference"
    return ", not a list" if isinstance(node, Items) else ", not a map"
