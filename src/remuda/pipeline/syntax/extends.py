"""Resolves `extends` and `!reference` in the merged tree of all files.

A job's own keys override its parents', later parents override earlier ones. References are replaced after that.

Invariants: afterwards there is no `Reference`; the tree is no deeper than `MAX_HEIGHT` and, with shared nodes counted
as if they were copied, no larger than `MAX_VALUES`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from remuda.pipeline.errors import Report, printable, quote
from remuda.pipeline.syntax.known_keys import nearest
from remuda.pipeline.syntax.tree import Entry, Items, Merger, Node, Opaque, Reference, Scalar, Table, items_of
from remuda.pipeline.syntax.typed_values import inside, is_null, mistyped
from remuda.pipeline.syntax.yaml_document import MAX_DEPTH

MAX_EXTENDS = 11
MAX_REFERENCES = 10
MAX_VALUES = 500_000
MAX_HEIGHT = 2 * MAX_DEPTH


def extend(report: Report, root: Table, merger: Merger) -> Table:
    """Merge every job and template with those that it extends. Reports unknown and circular `extends`."""
    parents = _Parents(report, root, merger)
    entries = {name: parents.entry(name, ()) for name in root.entries}
    return msgspec.structs.replace(root, entries=entries)


class _Parents:
    def __init__(self, report: Report, root: Table, merger: Merger) -> None:
        self._report = report
        self._root = root
        self._merger = merger
        self._done: dict[str, Entry] = {}
        # The levels of parents above a finished entry.
        self._levels: dict[str, int] = {}

    def entry(self, name: str, children: tuple[str, ...]) -> Entry:
        """Merge an entry with its parents. `children`: the entries that extend it, outermost first, to find circles."""
        if name in self._done:
            return self._done[name]
        entry = self._root.entries[name]
        merged, levels = entry, 0
        if isinstance(entry.value, Table) and "extends" in entry.value.entries:
            parents, levels = self._parents(name, entry.value.entries["extends"].value, children)
            if parents:
                merged = Entry(key=entry.key, value=self._merger.merge(*parents, entry.value))
        self._done[name], self._levels[name] = merged, levels
        return merged

    def _parents(self, name: str, node: Node, children: tuple[str, ...]) -> tuple[list[Table], int]:
        path = inside(name, "extends")
        if is_null(node):
            return [], 0
        parents: list[Table] = []
        levels = 0
        for item in items_of(node):
            if not isinstance(item, Scalar) or item.kind != "text":
                mistyped(self._report, item, path, "the name of a job or template")
                continue
            parent = item.text
            if parent not in self._root.entries:
                suggestion = nearest(parent, self._root.entries) or "name a job or template of this pipeline"
                self._report.add(item, path, f"there is no {quote(parent)} to extend", suggestion)
            elif parent == name or parent in children:
                trail = " -> ".join(map(printable, (*children[-10:], name, parent)))
                self._report.add(item, path, f"extends run in a circle: {trail}", "remove one of them")
            elif len(children) < MAX_EXTENDS and not isinstance(self._root.entries[parent].value, Table):
                if not isinstance(self._root.entries[parent].value, Opaque):
                    self._report.add(item, path, f"{quote(parent)} is not a map", "extend a job or a template")
            else:
                # A parent that is already finished counts with the levels above it.
                value = self.entry(parent, (*children, name)).value if len(children) < MAX_EXTENDS else None
                levels = max(levels, 1 + self._levels.get(parent, 0))
                if value is None or levels > MAX_EXTENDS:
                    message = f"extends go deeper than {MAX_EXTENDS} levels"
                    self._report.add(item, path, message, "extend fewer templates in a row")
                elif isinstance(value, Table):
                    parents.append(value)
        return parents, levels


def dereference(report: Report, root: Table) -> Table:
    """Replace every `!reference` by its target. Reports unknown and circular references."""
    return _References(report, root).table()


class _Resolved(NamedTuple):
    """A node without references, its number of values and levels of nesting; shared nodes count as copies."""

    node: Node
    values: int = 1
    height: int = 1


class _References:
    """Replaces the references of a tree. Resolved lists and maps are cached."""

    def __init__(self, report: Report, root: Table) -> None:
        self._report = report
        self._root = root
        # By id: the nodes live as long as the root.
        self._done: dict[int, _Resolved] = {}

    def table(self) -> Table:
        size = 1
        entries: dict[str, Entry] = {}
        for name, entry in self._root.entries.items():
            resolved = self._resolve(entry.value, 1, ())
            size += resolved.values
            entries[name] = entry if resolved.node is entry.value else Entry(key=entry.key, value=resolved.node)
            if size > MAX_VALUES:
                message = f"the pipeline has more than {MAX_VALUES} values after templates and references are expanded"
                self._report.stop(entry.key, name, message, "use fewer references and templates")
        return msgspec.structs.replace(self._root, entries=entries)

    def _resolve(self, node: Node, depth: int, trail: tuple[tuple[str, ...], ...]) -> _Resolved:
        if isinstance(node, Scalar | Opaque):
            return _Resolved(node)
        if id(node) in self._done:
            return self._done[id(node)]
        # The depth of the walk and the height of the result differ if a part was resolved before.
        if depth > MAX_HEIGHT:
            self._too_deep(node)
        resolved: _Resolved
        match node:
            case Reference():
                return self._target(node, depth, trail)
            case Items():
                parts = [self._resolve(item, depth + 1, trail) for item in node.items]
                changed = any(part.node is not item for part, item in zip(parts, node.items, strict=True))
                items = tuple(part.node for part in parts)
                new: Node = msgspec.structs.replace(node, items=items) if changed else node
                resolved = _measure(new, parts)
            case Table():
                values = {name: self._resolve(entry.value, depth + 1, trail) for name, entry in node.entries.items()}
                new = node
                if any(value.node is not node.entries[name].value for name, value in values.items()):
                    entries = {n: Entry(key=node.entries[n].key, value=value.node) for n, value in values.items()}
                    new = msgspec.structs.replace(node, entries=entries)
                resolved = _measure(new, list(values.values()))
        if resolved.height > MAX_HEIGHT:
            self._too_deep(node)
        self._done[id(node)] = resolved
        return resolved

    def _too_deep(self, node: Node) -> None:
        message = f"values are nested deeper than {MAX_HEIGHT} levels with references replaced"
        self._report.stop(node, "!reference", message, "nest less")

    def _target(self, node: Reference, depth: int, trail: tuple[tuple[str, ...], ...]) -> _Resolved:
        opaque = _Resolved(Opaque(line=node.line, column=node.column, file=node.file))
        path = f"[{', '.join(map(printable, node.path))}]"
        if node.path in trail:
            self._report.add(node, "!reference", f"{path} refers to itself", "remove it from what it names")
            return opaque
        if len(trail) >= MAX_REFERENCES:
            message = f"references are nested deeper than {MAX_REFERENCES} levels"
            self._report.add(node, "!reference", message, "name the value itself")
            return opaque
        inner = (*trail, node.path)
        target: Node = self._root
        for index, name in enumerate(node.path):
            if isinstance(target, Reference):
                target = self._resolve(target, depth + 1, inner).node
            if isinstance(target, Opaque):
                return opaque
            if not isinstance(target, Table) or name not in target.entries:
                names = target.entries if isinstance(target, Table) else ()
                where = f" in {quote(':'.join(node.path[:index]))}" if index else ""
                suggestion = nearest(name, names) or "name a value of this pipeline"
                self._report.add(node, "!reference", f"there is no {quote(name)}{where}", suggestion)
                return opaque
            target = target.entries[name].value
        return self._resolve(target, depth + 1, inner)


def _measure(node: Node, parts: Sequence[_Resolved]) -> _Resolved:
    values = 1 + sum(1 + part.values for part in parts)
    return _Resolved(node, values, 1 + max((part.height for part in parts), default=0))
