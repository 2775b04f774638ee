"""Reads `run`, the list of steps that replaces a job's script, as data for the runner.

The steps are checked as the step runner will read them (`step_checks`): names, references, expressions. A definition in
the same repository is read, too. What is wrong there is only a warning, because a job can change its working directory
before the step begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.pipeline.errors import Report
from remuda.pipeline.syntax.known_keys import STEP
from remuda.pipeline.syntax.tree import Entry, Items, Node, Scalar, Table, plain
from remuda.pipeline.syntax.typed_values import inside, mistyped, read_table, read_text

ReadFile = Callable[[str], str | None]
"""Returns the text of a file of the repository; None if it does not exist or cannot be read."""


def read_run(report: Report, node: Node, path: str, read_file: ReadFile) -> tuple[dict[str, Any], ...]:
    """Read the steps of a job as JSON-like data. Reports steps that no runner could run."""
    if not isinstance(node, Items):
        mistyped(report, node, path, "a list of steps")
        return ()
    if not node.items:
        report.add(node, path, "must not be empty", "give it at least one step")
    from remuda.pipeline.keywords.step_checks import check_steps  # imported here: it is large, and most jobs have none

    steps = [step for item in node.items if (step := _step(report, item, path))]
    check_steps(report, [entries for entries, _ in steps], path, read_file)
    return tuple(data for _, data in steps)


def _step(report: Report, node: Node, path: str) -> tuple[dict[str, Entry], dict[str, Any]] | None:
    """Return the keys of a step with their positions, and its data; None if it is not a map."""
    entries = read_table(report, node, path, STEP)
    if not isinstance(node, Table):
        return None
    if "name" not in entries:
        report.add(node, path, 'a step must have a "name"', "give it one")
    kinds = [key for key in ("step", "func", "script") if key in entries]
    if len(kinds) != 1 and "action" not in node.entries:
        report.add(node, path, 'a step must have one of "step", "func" and "script"', "say what it runs")
    if "script" in entries and "inputs" in entries:
        report.add(entries["inputs"].key, inside(path, "inputs"), '"inputs" do not go with "script"', 'use "env"')
    return entries, {key: _step_value(report, key, entry, path) for key, entry in entries.items()}


def _step_value(report: Report, key: str, entry: Entry, path: str) -> object:
    where = inside(path, key)
    if key in ("name", "script") or (key in ("step", "func") and isinstance(entry.value, Scalar)):
        return read_text(report, entry.value, where)
    if not isinstance(entry.value, Table):
        mistyped(report, entry.value, where, "a map")
        return None
    if key == "env":
        return {name: _env(report, each, inside(where, name)) for name, each in entry.value.entries.items()}
    return plain(entry.value)


def _env(report: Report, entry: Entry, path: str) -> str:
    if isinstance(entry.value, Scalar) and entry.value.kind != "null":
        return entry.value.text
    mistyped(report, entry.value, path, "a string")
    return ""
