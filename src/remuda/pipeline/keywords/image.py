"""Reads `image` and `services` of `default` and of jobs, in the form of the runner's payload.

The runner expands variables in names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.pipeline.errors import Report
from remuda.pipeline.keywords.variables import read_value, read_variables
from remuda.pipeline.syntax.known_keys import IMAGE, IMAGE_DOCKER, IMAGE_KUBERNETES, SERVICE
from remuda.pipeline.syntax.tree import Entry, Items, Node, Scalar
from remuda.pipeline.syntax.typed_values import (
    inside,
    mistyped,
    read_choice,
    read_one_or_more,
    read_table,
    read_text,
    read_texts,
)

PULL_POLICIES = ("always", "if-not-present", "never")


def read_image(report: Report, node: Node, path: str) -> dict[str, Any] | None:
    """A name, or a map with one."""
    if isinstance(node, Scalar):
        name = read_text(report, node, path)
        return None if name is None else {"name": name}
    entries = read_table(report, node, path, IMAGE)
    return _container(report, node, entries, path)


def read_services(report: Report, node: Node, path: str) -> tuple[dict[str, Any], ...] | None:
    if not isinstance(node, Items):
        mistyped(report, node, path, "a list of services", "put it in a list" if isinstance(node, Scalar) else "")
        return None
    services: list[dict[str, Any]] = []
    nodes: list[Node] = list(reversed(node.items))
    while nodes:
        item = nodes.pop()
        if isinstance(item, Items):
            nodes.extend(reversed(item.items))
        elif service := _service(report, item, path):
            services.append(service)
    return tuple(services)


def _service(report: Report, node: Node, path: str) -> dict[str, Any] | None:
    if isinstance(node, Scalar):
        name = read_text(report, node, path)
        return None if name is None else {"name": name}
    entries = read_table(report, node, path, SERVICE)
    service = _container(report, node, entries, path)
    if service is None:
        return None
    if "alias" in entries:
        service["alias"] = read_text(report, entries["alias"].value, inside(path, "alias"))
    if "command" in entries:
        service["command"] = list(read_one_or_more(report, entries["command"].value, inside(path, "command")) or ())
    if "variables" in entries:
        variables = read_variables(report, entries["variables"].value, inside(path, "variables"))
        service["variables"] = [{"key": key, "value": value} for key, value in variables.values.items()]
    return service


def _container(report: Report, node: Node, entries: Mapping[str, Entry], path: str) -> dict[str, Any] | None:
    """The keys that images and services share."""
    if "name" not in entries:
        if entries:
            report.add(node, path, 'has no "name"', "name the image")
        return None
    container: dict[str, Any] = {"name": read_text(report, entries["name"].value, inside(path, "name"))}
    if "entrypoint" in entries:
        where = inside(path, "entrypoint")
        container["entrypoint"] = list(read_one_or_more(report, entries["entrypoint"].value, where) or ())
    if "pull_policy" in entries:
        policies = entries["pull_policy"].value
        nodes = policies.items if isinstance(policies, Items) else (policies,)
        read = [read_choice(report, each, inside(path, "pull_policy"), PULL_POLICIES) for each in nodes]
        container["pull_policy"] = [policy for policy in read if policy is not None]
    options: dict[str, Any] = {}
    if "docker" in entries:
        options["docker"] = read_texts(report, entries["docker"].value, inside(path, "docker"), IMAGE_DOCKER)
    if "kubernetes" in entries:
        where = inside(path, "kubernetes")
        inner = read_table(report, entries["kubernetes"].value, where, IMAGE_KUBERNETES)
        options["kubernetes"] = {key: read_value(report, e.value, inside(where, key)) for key, e in inner.items()}
    if options:
        container["executor_opts"] = options
    return container
