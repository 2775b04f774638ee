"""Reads `variables` of a file, a job or a rule.

Numbers keep their spelling (`1.10` stays "1.10"); booleans become "true" or "false", a missing value an empty text. The
runner checks variables that it uses itself, such as GIT_DEPTH."""

from __future__ import annotations

import re

import msgspec

from remuda.pipeline.errors import Report, printable, quote
from remuda.pipeline.syntax.known_keys import Keys
from remuda.pipeline.syntax.tree import Items, Node, Opaque, Scalar, Table
from remuda.pipeline.syntax.typed_values import inside, is_null, is_text, mistyped, read_fields, read_text_or_empty

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Variables(msgspec.Struct, frozen=True, kw_only=True):
    """Variables by name. `raw` has the names of the variables whose values are not expanded."""

    values: dict[str, str] = {}
    raw: frozenset[str] = frozenset()

    def over(self, other: Variables) -> Variables:
        if not self.values:
            return other
        raw = (other.raw - self.values.keys()) | self.raw if other.raw or self.raw else self.raw
        return Variables(values={**other.values, **self.values}, raw=raw)


def read_variables(report: Report, node: Node, path: str, keys: Keys | None = None) -> Variables:
    """Read a map of variables. `keys`: those that a variable written as a map may have; None: no variable is a map."""
    if is_null(node):
        return Variables()
    if not isinstance(node, Table):
        mistyped(report, node, path, "a map of names and values")
        return Variables()
    values: dict[str, str] = {}
    raw: set[str] = set()
    for name, entry in node.entries.items():
        where = inside(path, name)
        if not check_name(report, entry.key, where):
            continue
        value = _read_variable(report, entry.value, where, raw, name, keys)
        if value is not None:
            values[name] = value
    return Variables(values=values, raw=frozenset(raw))


def check_name(report: Report, key: Scalar, path: str) -> bool:
    """True if the key is a valid name of a shell variable; otherwise reports a mistake."""
    if is_text(key) and _NAME.fullmatch(key.text):
        return True
    suggestion = "use letters, digits and _, no digit first"
    report.add(key, path, f"{quote(key.text)} is not a name for a variable", suggestion)
    return False


def _read_variable(report: Report, node: Node, path: str, raw: set[str], name: str, keys: Keys | None) -> str | None:
    """Read a value, or a map with `value` and `expand`; adds `name` to `raw` if it has `expand: false`."""
    if is_null(node) and keys is not None:
        return ""
    if not isinstance(node, Table):
        return read_value(report, node, path)
    if keys is None:
        mistyped(report, node, path, "a string, a number or a boolean")
        return None
    fields = read_fields(report, node, path, keys)
    fields.read("description", read_value)
    if fields.flag("expand") is False:
        raw.add(name)
    value = fields.read("value", read_value, "a string") if "value" in fields else ""
    fields.read("options", _check_options, value)
    return value


def _check_options(report: Report, node: Node, path: str, value: str | None) -> None:
    if not isinstance(node, Items):
        mistyped(report, node, path, "a list of values")
        return
    options = [read_text_or_empty(report, item, path) for item in node.items]
    if None not in options and options and value is not None and value not in options:
        shown = ", ".join(printable(option) for option in options if option is not None)
        report.add(node, path, f"the value {quote(value)} is none of them", f'set "value" to one of: {shown}')


def read_value(report: Report, node: Node, path: str, table: str = "a string, a number or a boolean") -> str | None:
    """Read a scalar as text; booleans become "true" or "false". None, with a mistake reported, if the node is null or
    no scalar. `table`: what the message says is expected if the node is a map."""
    if isinstance(node, Opaque):
        return None
    if not isinstance(node, Scalar):
        mistyped(report, node, path, table if isinstance(node, Table) else "a string, a number or a boolean")
        return None
    if node.kind == "null":
        report.add(node, path, "has no value", 'write "" for an empty one')
        return None
    return node.kind if node.kind in ("true", "false") else node.text
