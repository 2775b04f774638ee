"""Generates the JSON schema of `config.toml`, for editors, from the types (`values.py`) and the table of keys
(`keys/`). Unknown keys are allowed, except in Remuda's own sections."""

from typing import Any

import msgspec

from remuda.manager.config.keys.fact import Fact, Verdict
from remuda.manager.config.keys.lookup import FACTS, plain
from remuda.manager.config.values import EXECUTORS, ManagerConfig

_ARRAYS = frozenset(
    {
        "runners",
        "runners.docker.services",
        "runners.autoscaler.policy",
        "runners.machine.autoscaling",
        "runners.monitoring.job_queuing_durations",
        "runners.remuda.machines",
        "runners.remuda.fallback",
    }
)
"""Sections that may be repeated."""


def build_schema() -> dict[str, Any]:
    whole = msgspec.json.schema(ManagerConfig)
    components: dict[str, Any] = whole["$defs"]
    root = _inline(components[whole["$ref"].rpartition("/")[2]], components)
    for path, fact in FACTS.items():
        _place(root, path.split("."), fact)
    root["properties"]["runners"]["items"]["properties"]["executor"]["enum"] = list(EXECUTORS)
    for own in (root["properties"]["remuda"], root["properties"]["runners"]["items"]["properties"]["remuda"]):
        own["additionalProperties"] = False
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "config.toml of a Remuda runner manager",
        **root,
    }


def _inline(node: Any, components: dict[str, Any]) -> Any:
    """Replace all references by their targets, so that each use of a section can have its own description."""
    if isinstance(node, list):
        return [_inline(item, components) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline(components[node["$ref"].rpartition("/")[2]], components)
    return {key: _inline(value, components) for key, value in node.items() if key not in ("default", "title")}


def _place(root: dict[str, Any], parts: list[str], fact: Fact) -> None:
    """Add a key's description to the schema `root`, with the key and its sections if they are missing."""
    node, path = root, ""
    for part in parts[:-1]:
        path = f"{path}.{part}" if path else part
        empty: dict[str, Any] = {"type": "object", "properties": {}}
        fresh = {"type": "array", "items": empty} if path in _ARRAYS else empty
        node = node.setdefault("properties", {}).setdefault(part, fresh)
        node = node["items"] if path in _ARRAYS else node
    leaf = node.setdefault("properties", {}).setdefault(parts[-1], {})
    verdict = "" if fact.verdict is Verdict.WORKS else f"{fact.verdict}: "
    leaf["description"] = f"{verdict}{plain(fact.about)}"
    if fact.default:
        leaf["description"] += f" (default: {plain(fact.default)})"
