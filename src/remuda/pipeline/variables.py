"""The `variables` of a file or a job.

Decided here: which names and values a variable may have. Numbers keep the form they are written in (`1.10` stays
"1.10"), booleans become "true" or "false" whatever their spelling. GIT_STRATEGY and GIT_DEPTH are checked now,
since a misspelt one would show only after a machine has been made for the job. Expansion of `$NAME` happens later,
in the job's environment.
"""

from __future__ import annotations

import re

from remuda.pipeline.document import Node, Opaque, Scalar, Table
from remuda.pipeline.errors import Report, quoted
from remuda.pipeline.keywords import VARIABLE, nearest
from remuda.pipeline.reading import inside, is_null, is_text, mistyped, read_table

GIT_STRATEGIES = ("none", "fetch", "clone", "empty")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DEPTH = re.compile(r"[0-9]{1,9}", re.ASCII)


def read_variables(report: Report, node: Node, path: str) -> dict[str, str]:
    """Names with values, as the job's environment will have them."""
    if is_null(node):
        return {}
    if not isinstance(node, Table):
        mistyped(report, node, path, "a map of names and values")
        return {}
    variables: dict[str, str] = {}
    for name, entry in node.entries.items():
        where = inside(path, name)
        if not is_text(entry.key) or not _NAME.fullmatch(name):
            message = f"{quoted(name)} is no name for a variable"
            report.add(entry.key, where, message, "use letters, digits and _, no digit first")
            continue
        value = _value(report, entry.value, where)
        if value is not None:
            variables[name] = value
            _check_git(report, name, value, entry.value, where)
    return variables


def _value(report: Report, node: Node, path: str) -> str | None:
    if isinstance(node, Table):
        entries = read_table(report, node, path, VARIABLE)
        if "description" in entries:
            _value(report, entries["description"].value, inside(path, "description"))
        inner = entries["value"].value if "value" in entries else None
        if isinstance(inner, Table):
            mistyped(report, inner, inside(path, "value"), "a string")
            return None
        return "" if inner is None else _value(report, inner, inside(path, "value"))
    if isinstance(node, Opaque):
        return None
    if not isinstance(node, Scalar):
        mistyped(report, node, path, "a string, a number or a boolean")
        return None
    if node.kind == "null":
        report.add(node, path, "has no value", 'write "" for an empty one')
        return None
    return node.kind if node.kind in ("true", "false") else node.text


def _check_git(report: Report, name: str, value: str, at: Node, path: str) -> None:
    if "$" in value:
        return
    if name == "GIT_STRATEGY" and value not in GIT_STRATEGIES:
        suggestion = nearest(value, GIT_STRATEGIES) or f"use one of: {', '.join(GIT_STRATEGIES)}"
        report.add(at, path, f"unknown value {quoted(value)}", suggestion)
    elif name == "GIT_DEPTH" and not _DEPTH.fullmatch(value):
        message = f"must be a whole number of commits, not {quoted(value)}"
        report.add(at, path, message, "0 fetches the whole history")
