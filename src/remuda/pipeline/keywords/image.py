"""Reads `image` and `services` of `default` and of jobs, and converts them to the form in which runners receive them.

Variables in image names are not expanded here; the runner does that."""

from __future__ import annotations

from typing import Any

from remuda.pipeline.errors import Report
from remuda.pipeline.keywords.variables import read_value, read_variables
from remuda.pipeline.syntax.known_keys import IMAGE, IMAGE_DOCKER, IMAGE_KUBERNETES, SERVICE
from remuda.pipeline.syntax.tree import Items, Node, Scalar, Table, flatten
from remuda.pipeline.syntax.typed_values import (
    Fields,
    inside,
    mistyped,
    read_choices,
    read_fields,
    read_table,
    read_text,
    read_texts,
)

PULL_POLICIES = ("always", "if-not-present", "never")


def read_image(report: Report, node: Node, path: str) -> dict[str, Any] | None:
    """Read an image: a name, or a map with a `name`. Returns it in the form in which runners receive it."""
    if isinstance(node, Scalar):
        return _by_name(report, node, path)
    return _container(report, node, read_fields(report, node, path, IMAGE), path)


def read_services(report: Report, node: Node, path: str) -> tuple[dict[str, Any], ...] | None:
    if not isinstance(node, Items):
        mistyped(report, node, path, "a list of services", "put it in a list" if isinstance(node, Scalar) else "")
        return None
    return tuple(service for item in flatten(node) if (service := _service(report, item, path)))


def _service(report: Report, node: Node, path: str) -> dict[str, Any] | None:
    if isinstance(node, Scalar):
        return _by_name(report, node, path)
    fields = read_fields(report, node, path, SERVICE)
    service = _container(report, node, fields, path)
    if service is None:
        return None
    if alias := fields.text_or_empty("alias"):
        service["alias"] = alias
    if "command" in fields:
        service["command"] = list(fields.strings("command") or ())
    if (variables := fields.read("variables", read_variables)) is not None:
        service["variables"] = [{"key": key, "value": value} for key, value in variables.values.items()]
    return service


def _by_name(report: Report, node: Scalar, path: str) -> dict[str, Any] | None:
    name = read_text(report, node, path)
    return None if name is None else {"name": name}


def _container(report: Report, node: Node, fields: Fields, path: str) -> dict[str, Any] | None:
    """Read the keys common to images and services; None, with a mistake reported, if there is no `name`."""
    if "name" not in fields:
        if isinstance(node, Table):
            report.add(node, path, 'has no "name"', "name the image")
        return None
    container: dict[str, Any] = {"name": fields.text("name")}
    if "entrypoint" in fields:
        container["entrypoint"] = list(fields.strings("entrypoint") or ())
    if "pull_policy" in fields:
        container["pull_policy"] = list(fields.read("pull_policy", read_choices, PULL_POLICIES) or ())
    options: dict[str, Any] = {}
    if "docker" in fields:
        options["docker"] = fields.read("docker", read_texts, IMAGE_DOCKER)
    if "kubernetes" in fields:
        options["kubernetes"] = fields.read("kubernetes", _kubernetes)
    if options:
        container["executor_opts"] = options
    return container


def _kubernetes(report: Report, node: Node, path: str) -> dict[str, Any]:
    entries = read_table(report, node, path, IMAGE_KUBERNETES)
    return {key: read_value(report, entry.value, inside(path, key)) for key, entry in entries.items()}
