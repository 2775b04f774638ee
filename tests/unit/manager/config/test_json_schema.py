"""The JSON schema of the configuration file: it accepts what the manager accepts, and describes every key."""

import tomllib
from typing import Any

import jsonschema_rs

from remuda.manager.config.json_schema import build_schema
from remuda.manager.config.keys.lookup import FACTS


def is_described(node: dict[str, Any], path: str) -> bool:
    for part in path.split("."):
        node = node.get("items", node)["properties"][part]
    return bool(node["description"])


def test_every_key_is_described() -> None:
    schema = build_schema()
    assert all(is_described(schema, path) for path in FACTS)


def test_types_of_values() -> None:
    runner = build_schema()["properties"]["runners"]["items"]["properties"]
    assert runner["limit"]["type"] == "integer"
    assert runner["docker"]["properties"]["pull_policy"]["anyOf"]
    assert runner["remuda"]["properties"]["machines"]["items"]["properties"]["capacity"]["type"] == "integer"
    assert "kubernetes" not in runner["executor"]["enum"]
    assert runner["remuda"]["additionalProperties"] is False
    assert "$ref" not in str(runner)


def test_a_typical_file_is_valid() -> None:
    runner = '[[runners]]\nurl = "https://x"\ntoken = "t"\nexecutor = "docker"\n[runners.docker]\nmemory = "1g"\n'
    text = f"concurrent = 2\n{runner}"
    assert jsonschema_rs.is_valid(build_schema(), tomllib.loads(text))
    for right, wrong in (("2", '"two"'), ("docker", "dokcer"), ('"1g"', "1")):
        assert not jsonschema_rs.is_valid(build_schema(), tomllib.loads(text.replace(right, wrong, 1))), wrong
