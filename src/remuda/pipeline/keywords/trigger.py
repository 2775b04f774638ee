"""Reads `trigger`, which replaces a job's script.

Whether the project or file of a trigger exists is checked when the job runs, because variables in its name may come
from other jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.pipeline.errors import Report
from remuda.pipeline.rules.globs import normal_path
from remuda.pipeline.spec import Trigger
from remuda.pipeline.syntax.known_keys import FORWARD, TRIGGER, TRIGGER_INCLUDE
from remuda.pipeline.syntax.tree import Entry, Node, Scalar, Table, items_of, plain
from remuda.pipeline.syntax.typed_values import (
    inside,
    mistyped,
    read_fields,
    read_flag,
    read_one_or_more,
    read_table,
    read_text,
)

MAX_CHILD_FILES = 3
STRATEGIES = ("depend", "mirror")
# Keys that have no effect without a machine.
NOT_WITH_TRIGGER = (
    "script",
    "run",
    "before_script",
    "after_script",
    "hooks",
    "image",
    "services",
    "cache",
    "artifacts",
    "dependencies",
    "tags",
    "timeout",
    "coverage",
    "release",
    "secrets",
    "id_tokens",
    "pages",
    "publish",
    "inputs",
)
_KINDS = ("local", "artifact", "project", "remote", "template", "component")
NOT_WITH_RUN = ("script", "before_script", "after_script")


def read_trigger(report: Report, node: Node, path: str) -> Trigger | None:
    """Read `trigger`: the path of a project, or a map with `project` or `include`. Reports invalid combinations."""
    if isinstance(node, Scalar):
        project = read_text(report, node, path)
        return None if project is None else Trigger(project=project)
    fields = read_fields(report, node, path, TRIGGER)
    if isinstance(node, Table) and ("project" in node.entries) == ("include" in node.entries):
        report.add(node, path, 'must have a "project" or an "include", and not both', "say which pipeline to start")
    if "branch" in fields and "include" in fields:
        fields.refuse_key("branch", '"branch" requires a "project"', "remove it")
    forward = fields.read("forward", _flags) or {}
    return Trigger(
        project=fields.text("project") or "",
        branch=fields.text_or_empty("branch") or "",
        include=fields.read("include", _includes) or (),
        strategy=fields.choice("strategy", STRATEGIES) or "",
        forward_yaml_variables=forward.get("yaml_variables", True),
        forward_pipeline_variables=forward.get("pipeline_variables", False),
        inputs=fields.read("inputs", _inputs) or {},
    )


def _flags(report: Report, node: Node, path: str) -> dict[str, bool]:
    entries = read_table(report, node, path, FORWARD)
    read = {key: read_flag(report, entry.value, inside(path, key)) for key, entry in entries.items()}
    return {key: flag for key, flag in read.items() if flag is not None}


def _inputs(report: Report, node: Node, path: str) -> dict[str, Any]:
    if not isinstance(node, Table):
        mistyped(report, node, path, "a map of inputs")
        return {}
    return {name: plain(entry.value) for name, entry in node.entries.items()}


def _includes(report: Report, node: Node, path: str) -> tuple[dict[str, Any], ...]:
    nodes = items_of(node)
    if not nodes:
        report.add(node, path, "must not be empty", "name the file of the child pipeline")
    if len(nodes) > MAX_CHILD_FILES:
        report.add(node, path, f"a child pipeline has at most {MAX_CHILD_FILES} files", "include the others from one")
    return tuple(include for item in nodes if (include := _include(report, item, path)))


def _include(report: Report, node: Node, path: str) -> dict[str, Any] | None:
    if isinstance(node, Scalar):
        file = read_text(report, node, path)
        return _local(report, file, node, path) if file is not None else None
    entries = read_table(report, node, path, TRIGGER_INCLUDE)
    include: dict[str, Any] = {}
    for key, entry in entries.items():
        where = inside(path, key)
        if key == "inputs":
            include[key] = _inputs(report, entry.value, where)
        elif key == "file":
            include[key] = list(read_one_or_more(report, entry.value, where) or ())
        elif (text := read_text(report, entry.value, where)) is not None:
            include[key] = _local(report, text, entry.value, where)["local"] if key == "local" else text
    kinds = [key for key in _KINDS if key in entries]
    if isinstance(node, Table) and len(kinds) != 1:
        choices = ", ".join(f'"{kind}"' for kind in _KINDS)
        report.add(node, path, f"must have one of {choices}", "say where the file is")
    if "integrity" in entries and "remote" not in entries:
        message = '"integrity" requires a "remote"'
        report.add(entries["integrity"].key, inside(path, "integrity"), message, "remove it")
    for key, partner in (("artifact", "job"), ("project", "file")):
        if (key in entries) != (partner in entries):
            report.add(node, path, f'"{key}" and "{partner}" go together', "give both")
    return include


def _local(report: Report, file: str, at: Node, path: str) -> dict[str, Any]:
    normal = normal_path(file)
    if normal is None:
        report.add(at, path, "the path leaves the repository", "name a file of this repository")
    return {"local": normal or ""}


def check_alone(report: Report, entries: Mapping[str, Entry], name: str) -> None:
    """Report the keys of the job `name` that cannot be combined with its `trigger` or `run`."""
    for leader, others in (("trigger", NOT_WITH_TRIGGER), ("run", NOT_WITH_RUN)):
        for key in others if leader in entries else ():
            if key in entries:
                message = f'"{key}" does not go with "{leader}"'
                report.add(entries[key].key, inside(name, key), message, "remove one of them")
