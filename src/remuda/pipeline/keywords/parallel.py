"""Reads `parallel`: the number of parts of a job, their names and their variables.

A number gives the names `name 1/3` and so on, a matrix gives `name: [a, b]`.

Invariant: the number of parts is checked against `MAX_PARALLEL` before any part is made."""

from __future__ import annotations

from itertools import product
from math import prod

import msgspec

from remuda.pipeline.errors import Report
from remuda.pipeline.keywords.variables import check_name, read_value
from remuda.pipeline.syntax.known_keys import PARALLEL
from remuda.pipeline.syntax.tree import Items, Node, Scalar, Table, items_of
from remuda.pipeline.syntax.typed_values import inside, is_text, mistyped, read_fields, read_integer

MAX_PARALLEL = 200


class Parallel(msgspec.Struct, frozen=True, kw_only=True):
    """`count` equal parts, or one part for each set of variables in `matrix`."""

    count: int
    matrix: tuple[dict[str, str], ...] = ()

    def names(self, name: str) -> tuple[str, ...]:
        if self.matrix:
            return tuple(f"{name}: [{', '.join(variables.values())}]" for variables in self.matrix)
        return tuple(f"{name} {part}/{self.count}" for part in range(1, self.count + 1))

    def variables(self, index: int) -> dict[str, str]:
        """Return CI_NODE_INDEX, CI_NODE_TOTAL and the matrix values of a part; `index` counts from 0."""
        node = {"CI_NODE_INDEX": str(index + 1), "CI_NODE_TOTAL": str(self.count)}
        return {**self.matrix[index], **node} if self.matrix else node


def read_parallel(report: Report, node: Node, path: str) -> Parallel | None:
    """Read `parallel`: a number, or a map with a `matrix`. None, with a mistake reported, if it is invalid."""
    if not isinstance(node, Table):
        count = read_integer(report, node, path, low=1, high=MAX_PARALLEL)
        return None if count is None else Parallel(count=count)
    fields = read_fields(report, node, path, PARALLEL)
    if "matrix" not in fields:
        report.add(node, path, 'has no "matrix"', "give it one, or a number instead of the map")
    return fields.read("matrix", read_matrix)


def read_matrix(report: Report, node: Node, path: str) -> Parallel | None:
    """Make a part for each combination of values; None, with a mistake reported, if there are none or too many."""
    if not isinstance(node, Items):
        suggestion = "put a - before it" if isinstance(node, Table) else ""
        mistyped(report, node, path, "a list of maps of variables", suggestion)
        return None
    rows: list[dict[str, tuple[str, ...]]] = []
    for item in node.items:
        if isinstance(item, Table) and item.entries:
            for name, entry in item.entries.items():
                check_name(report, entry.key, inside(path, name))
            rows.append({name: _values(report, e.value, inside(path, name)) for name, e in item.entries.items()})
        else:
            mistyped(report, item, path, "a map of variables")
    count = sum(prod(len(values) for values in row.values()) for row in rows)
    if count > MAX_PARALLEL:
        report.add(node, path, f"makes {count} jobs, and at most {MAX_PARALLEL} are allowed", "use fewer values")
        return None
    matrix = tuple(dict(zip(row, values, strict=True)) for row in rows for values in product(*row.values()))
    if not node.items:
        report.add(node, path, "must not be empty", "give it a map of variables")
    return Parallel(count=count, matrix=matrix) if matrix else None


def _values(report: Report, node: Node, path: str) -> tuple[str, ...]:
    read = [read_value(report, item, path) for item in items_of(node)]
    if not read or (isinstance(node, Scalar) and is_text(node) and not node.text.strip()):
        report.add(node, path, "must not be empty", "give it a value")
    return tuple(value for value in read if value is not None)
