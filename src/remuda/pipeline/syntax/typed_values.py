"""Functions that read a node of the tree as a value of a certain type, or report a mistake and return None.

Invariant: a function that returns None has reported a mistake, or met a value whose mistake is already reported (except
`read_duration` with `also`). So its caller can continue as if the key were absent. `path`: the key in messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from remuda.pipeline.errors import Report, printable, quote
from remuda.pipeline.syntax.durations import parse_duration
from remuda.pipeline.syntax.known_keys import NOT_YET, Keys, join_names, nearest
from remuda.pipeline.syntax.tree import Entry, Items, Node, Opaque, Reference, Scalar, Table, items_of

_INTEGER = re.compile(r"[-+]?[0-9]{1,9}", re.ASCII)

MAX_LIST_DEPTH = 10
"""Levels of lists in a script, as in GitLab."""

_T = TypeVar("_T")


class Fields:
    """The entries of a map. The methods return None if the key is absent or its value is invalid."""

    __slots__ = ("_entries", "_path", "_report")

    def __init__(self, report: Report, entries: Mapping[str, Entry], path: str) -> None:
        self._report = report
        self._entries = entries
        self._path = path

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, key: str, reader: Callable[..., _T | None], *arguments: object) -> _T | None:
        """Return `reader(report, value, path, *arguments)` for the value of the key; None if the key is absent."""
        entry = self._entries.get(key)
        return None if entry is None else reader(self._report, entry.value, inside(self._path, key), *arguments)

    def text(self, key: str) -> str | None:
        return self.read(key, read_text)

    def text_or_empty(self, key: str) -> str | None:
        return self.read(key, read_text_or_empty)

    def flag(self, key: str) -> bool | None:
        return self.read(key, read_flag)

    def choice(self, key: str, choices: Sequence[str]) -> str | None:
        return self.read(key, read_choice, choices)

    def strings(self, key: str) -> tuple[str, ...] | None:
        return self.read(key, read_strings)

    def one_or_more(self, key: str) -> tuple[str, ...] | None:
        return self.read(key, read_one_or_more)

    def refuse_key(self, key: str, message: str, suggestion: str = "") -> None:
        self._report.add(self._entries[key].key, inside(self._path, key), message, suggestion)

    def refuse_value(self, key: str, message: str, suggestion: str = "") -> None:
        self._report.add(self._entries[key].value, inside(self._path, key), message, suggestion)


def inside(path: str, key: str) -> str:
    """Return the path of a key as messages show it: `build:artifacts:paths`."""
    return f"{path}:{key}" if path else key


def read_table(report: Report, node: Node, path: str, keys: Keys) -> dict[str, Entry]:
    """Return the entries with supported keys that are not null. Reports other keys, and a node that is not a map. Warns
    of keys without effect."""
    if not isinstance(node, Table):
        mistyped(report, node, path, "a map")
        return {}
    entries: dict[str, Entry] = {}
    for name, entry in node.entries.items():
        if not is_text(entry.key):
            report_name(report, entry.key, path, "a key")
            continue
        if name in keys.no_effect and not is_null(entry.value) and not _is_harmless(entry, keys):
            report.warn(entry.key, inside(path, name), f"has no effect here: {keys.no_effect[name]}")
        if name in keys.works:
            if not is_null(entry.value):
                entries[name] = entry
        elif name not in keys.no_effect:
            report_key(report, entry.key, path, keys)
    return entries


def _is_harmless(entry: Entry, keys: Keys) -> bool:
    """True if a key without effect has a value that asks for what happens anyway."""
    value = keys.harmless.get(entry.key.text)
    return isinstance(entry.value, Scalar) and value is not None and value in (entry.value.text, entry.value.kind)


def read_fields(report: Report, node: Node, path: str, keys: Keys) -> Fields:
    return Fields(report, read_table(report, node, path, keys), path)


def report_name(report: Report, key: Scalar, path: str, what: str) -> None:
    """Report a key that is a number, a boolean or null where a name is expected; `what` says which name."""
    where = inside(path, key.text) if key.text else path
    report.add_of_value(
        key, where, f"{what} must be a string{_instead(key)}", f'write it in quotes: "{printable(key.text)}"'
    )


def report_key(report: Report, key: Scalar, path: str, keys: Keys) -> None:
    """Report a key that is unknown, or not supported yet, with a suggestion."""
    where = inside(path, key.text)
    if key.text in keys.later:
        report.add_of_value(key, where, f"the key {quote(key.text)} is not supported yet", NOT_YET)
    elif key.text in keys.misplaced:
        report.add_of_value(key, where, f"the key {quote(key.text)} is not allowed here", keys.misplaced[key.text])
    else:
        suggestion = nearest(key.text, keys.works + keys.later)
        known = f"known here: {join_names(keys.works)}" if keys.works else "remove it"
        report.add_of_value(key, where, f"unknown key {quote(key.text)}", suggestion or known)


def read_text(report: Report, node: Node, path: str) -> str | None:
    """Read a string that must not be empty."""
    text = read_text_or_empty(report, node, path)
    if text == "":
        report.add_of_value(node, path, "must not be empty")
    return text or None


def read_text_or_empty(report: Report, node: Node, path: str) -> str | None:
    """Read a string of a keyword for which GitLab takes the empty one, too: it counts as not set."""
    if isinstance(node, Scalar) and node.kind == "text":
        return node.text
    mistyped(report, node, path, "a string")
    return None


def read_choice(report: Report, node: Node, path: str, choices: Sequence[str]) -> str | None:
    """Read one word of `choices`, which may have the empty one."""
    text = (read_text_or_empty if "" in choices else read_text)(report, node, path)
    if text is not None and text not in choices:
        suggestion = nearest(text, choices) or f"use one of: {', '.join(filter(None, choices))}"
        report.add_of_value(node, path, f"unknown value {quote(text)}", suggestion)
        return None
    return text


def read_texts(report: Report, node: Node, path: str, keys: Keys, *, need: tuple[str, ...] = ()) -> dict[str, str]:
    """Read a map whose values are all strings; leaves out empty ones. Reports missing and empty keys of `need`."""
    entries = read_table(report, node, path, keys)
    texts: dict[str, str] = {}
    for name, entry in entries.items():
        text = (read_text if name in need else read_text_or_empty)(report, entry.value, inside(path, name))
        if text:
            texts[name] = text
    if isinstance(node, Table):
        for name in need:
            if name not in entries:
                report.add(node, path, f'has no "{name}"', "give it one")
    return texts


def read_flag(report: Report, node: Node, path: str) -> bool | None:
    if isinstance(node, Scalar) and node.kind in ("true", "false"):
        return node.kind == "true"
    mistyped(report, node, path, "true or false")
    return None


def read_integer(report: Report, node: Node, path: str, low: int, high: int) -> int | None:
    if not isinstance(node, Scalar) or node.kind != "number" or not _INTEGER.fullmatch(node.text):
        mistyped(report, node, path, f"a whole number from {low} to {high}")
        return None
    number = int(node.text)
    if not low <= number <= high:
        report.add_of_value(node, path, f"must be a whole number from {low} to {high}, not {number}")
        return None
    return number


def read_strings(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """Read a list of strings. Nested lists are flattened, so that a list may contain aliases of lists."""
    if not isinstance(node, Items):
        mistyped(report, node, path, "a list of strings", "put it in a list" if is_text(node) else "")
        return None
    return tuple(text for item in node.items for text in _flatten(report, item, path))


def read_one_or_more(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """Read a non-empty string or a list of strings; returns a tuple in both cases."""
    if isinstance(node, Items):
        return read_strings(report, node, path)
    text = read_text(report, node, path)
    return None if text is None else (text,)


def read_any_number(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """Read a string or a list of strings; leaves out empty strings."""
    if isinstance(node, Scalar):
        text = read_text_or_empty(report, node, path)
        return None if text is None else tuple(filter(None, (text,)))
    texts = read_strings(report, node, path)
    return None if texts is None else tuple(filter(None, texts))


def read_choices(report: Report, node: Node, path: str, choices: Sequence[str]) -> tuple[str, ...]:
    """Read one word or a list of words of `choices`. Invalid words are reported and left out."""
    read = [read_choice(report, item, path, choices) for item in items_of(node)]
    return tuple(word for word in read if word is not None)


def read_duration(report: Report, node: Node, path: str, limit: str = "", *, also: tuple[str, ...] = ()) -> int | None:
    """Read a duration and return it in seconds. `limit`: the longest that is allowed; empty: no limit. The words in
    `also`, such as `never`, are valid, too, and give None."""
    if not isinstance(node, Scalar) or node.kind not in ("text", "number"):
        mistyped(report, node, path, 'a duration such as "1h 30m"')
        return None
    seconds = parse_duration(node.text)
    if limit and (seconds or 0) > (parse_duration(limit) or 0):
        report.add_of_value(node, path, f"must not be longer than {limit}", "shorten it")
    elif not seconds and node.text.lower() not in also:
        words = "".join(f', or "{word}"' for word in also)
        suggestion = f'write it like "1h 30m" or "90 minutes"{words}'
        report.add_of_value(node, path, f"{quote(node.text)} is not a duration", suggestion)
    return seconds or None


def read_numbers(report: Report, node: Node, path: str, low: int, high: int) -> tuple[int, ...]:
    """Read one or more numbers from `low` to `high`. Invalid ones are reported and left out."""
    read = [read_integer(report, item, path, low=low, high=high) for item in items_of(node)]
    return tuple(value for value in read if value is not None)


def read_script(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """Read the lines of a shell script: a string, which may be empty, or a list of strings, which may be nested."""
    if isinstance(node, Scalar) and node.kind == "text" and not node.text:
        return ()
    if isinstance(node, Items) and _depth(node) > MAX_LIST_DEPTH:
        report.add_of_value(node, path, f"lists are nested deeper than {MAX_LIST_DEPTH} levels", "nest less")
        return None
    return read_one_or_more(report, node, path) if isinstance(node, Scalar) else read_strings(report, node, path)


def _depth(node: Node) -> int:
    """Return how many lists are nested in a list, at most, itself included; 0 for other nodes."""
    return 1 + max(map(_depth, node.items), default=0) if isinstance(node, Items) else 0


def _flatten(report: Report, node: Node, path: str) -> tuple[str, ...]:
    if isinstance(node, Items):
        return tuple(text for item in node.items for text in _flatten(report, item, path))
    if isinstance(node, Scalar) and node.kind == "text":
        return (node.text,)
    hint = 'a ": " makes it a map: put the whole line in quotes' if isinstance(node, Table) else ""
    mistyped(report, node, path, "a string", hint)
    return ()


def mistyped(report: Report, node: Node, path: str, expected: str, suggestion: str = "") -> None:
    """Report that the value must be `expected` (such as "a string"), unless its mistake is already reported."""
    if isinstance(node, Opaque):
        return
    if not suggestion and isinstance(node, Scalar) and node.kind not in ("text", "null") and "a string" in expected:
        suggestion = f'write it in quotes: "{printable(node.text)}"'
    report.add_of_value(node, path, f"must be {expected}{_instead(node)}", suggestion)


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
