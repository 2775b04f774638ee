"""Finds the value that `name`, or for example `servers[0].host`, means in the inputs of a file."""

from __future__ import annotations

import re
from collections.abc import Mapping

from remuda.pipeline.errors import printable, quote
from remuda.pipeline.facts import SourceProblem
from remuda.pipeline.syntax.known_keys import nearest
from remuda.pipeline.syntax.tree import Items, Node, Opaque, Table

MAX_KEYS = 4
_PART = re.compile(r"([^\[\]]+)((?:\[\d{1,6}\]){0,5})", re.ASCII)
_INDEX = re.compile(r"\d+", re.ASCII)


def find_value(values: Mapping[str, Node], path: str) -> Node | SourceProblem | None:
    """Return the value at `path`, or the reason why there is none; None if `path` is not a valid path. An invalid value
    on the way, whose mistake is already reported, is returned itself."""
    steps = _read_path(path)
    if not steps:
        return None
    name = str(steps[0])
    if name not in values:
        suggestion = nearest(name, values) or 'declare it under "spec:inputs"'
        return SourceProblem(reason=f"there is no input {quote(name)}", suggestion=suggestion)
    node = values[name]
    for step in steps[1:]:
        if isinstance(node, Opaque):
            return node
        below = _find_item(node, step, name) if isinstance(step, int) else _find_entry(node, step, name)
        if isinstance(below, SourceProblem):
            return below
        node = below
        name += f"[{step}]" if isinstance(step, int) else f".{step}"
    return node


def _read_path(path: str) -> list[str | int]:
    """Split a path into the keys and indexes on the way; empty if it is invalid."""
    steps: list[str | int] = []
    for part in path.split(".", MAX_KEYS - 1):
        match = _PART.fullmatch(part)
        if match is None:
            return []
        steps += (match[1], *map(int, _INDEX.findall(match[2])))
    return steps


def _find_item(node: Node, index: int, name: str) -> Node | SourceProblem:
    if not isinstance(node, Items):
        return SourceProblem(reason=f"{quote(name)} is not a list", suggestion=f"remove [{index}]")
    if index < len(node.items):
        return node.items[index]
    reason = f"{quote(name)} has {len(node.items)} values, so there is no [{index}]"
    return SourceProblem(reason=reason, suggestion="the first value is [0]")


def _find_entry(node: Node, key: str, name: str) -> Node | SourceProblem:
    if not isinstance(node, Table):
        return SourceProblem(reason=f"{quote(name)} is not a map", suggestion=f"remove .{printable(key)}")
    if key in node.entries:
        return node.entries[key].value
    suggestion = nearest(key, node.entries) or "use another key"
    return SourceProblem(reason=f"{quote(name)} has no {quote(key)}", suggestion=suggestion)
