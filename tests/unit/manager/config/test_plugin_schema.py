"""Checks of settings against the JSON schema of a plugin."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.fleeting.sdk import read_config
from remuda.fleeting.serving import config_schema
from remuda.manager.config.plugin_schema import find_mismatches
from remuda.testing.instance_groups import PlainGroup


class _Disk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    size: int = 1
    kind: str | None = None


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    zone: str
    names: list[str] = []
    disk: _Disk = _Disk()
    share: float = 0.0
    is_spot: bool = False


class _Group(PlainGroup):
    config_type = _Config  # type: ignore[assignment]


SCHEMA = config_schema(_Group())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"zone": "a", "names": ["x"], "disk": {"size": 3, "kind": None}, "share": 1, "is_spot": True}, []),
        ({}, [("zone", "is missing")]),
        ({"zone": "a", "shere": 1}, [("shere", "there is no such setting; did you mean share?")]),
        ({"zone": "a", "q": 1}, [("q", "there is no such setting; known are: zone, names, disk, share, is_spot")]),
        ({"zone": 7}, [("zone", "has to be a text, not a whole number")]),
        ({"zone": "a", "names": ["x", 2]}, [("names[1]", "has to be a text, not a whole number")]),
        ({"zone": "a", "disk": {"size": "big"}}, [("disk.size", "has to be a whole number, not a text")]),
        ({"zone": "a", "disk": {"kind": 2}}, [("disk.kind", "has to be a text, not a whole number")]),
        ({"zone": "a", "disk": {"sise": 2}}, [("disk.sise", "there is no such setting; did you mean size?")]),
        ({"zone": "a", "is_spot": 1}, [("is_spot", "has to be true or false, not a whole number")]),
        ({"zone": "a", "share": True}, [("share", "has to be a number, not true or false")]),
    ],
)
def test_a_mismatch_has_its_path_and_text(settings: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert find_mismatches(settings, SCHEMA) == expected


@pytest.mark.parametrize(
    ("rule", "value", "expected"),
    [
        ({"enum": ["a", "b"]}, "c", "has to be one of a, b"),
        ({"minimum": 1}, 0, "has to be at least 1"),
        ({"exclusiveMaximum": 5}, 5, "has to be less than 5"),
        ({"pattern": "^[a-z]+$"}, "A", "is not of the form ^[a-z]+$"),
        ({"minLength": 1}, "", "must not be empty"),
        ({"type": ["string", "integer"]}, [], "has to be a text or a whole number, not a list"),
        ({"pattern": "(?<broken"}, "x", ""),
        ({"type": "quaternion", "furlongs": 3}, "x", ""),
        ({"$ref": "https://elsewhere/x"}, "x", ""),
        ({"$ref": "#"}, 1, "has to be a table, not a whole number"),
        ({"type": "integer"}, 3.0, ""),
    ],
)
def test_rules_of_a_schema(rule: dict[str, Any], value: Any, expected: str) -> None:
    schema = {"type": "object", "properties": {"x": rule}}
    assert find_mismatches({"x": value}, schema) == ([("x", expected)] if expected else [])


def test_no_value_is_shown() -> None:
    schema = {"properties": {"password": {"type": "integer", "enum": [1], "pattern": "^x"}}}
    assert "hunter2" not in str(find_mismatches({"password": "hunter2"}, schema))


def test_circular_references_end() -> None:
    assert find_mismatches({"a": 1}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}) == []


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    schema=st.dictionaries(st.sampled_from(["type", "enum", "items", "properties", "required", "anyOf", "$ref"]), _ANY)
)
def test_no_schema_raises(schema: dict[str, Any]) -> None:
    find_mismatches({"a": [1, {"b": "c"}]}, schema)


@given(
    settings=st.fixed_dictionaries(
        {"zone": st.text(max_size=2) | st.integers()},
        optional={"disk": _ANY, "names": _ANY, "share": _ANY, "is_spot": _ANY, "other": _ANY},
    )
)
def test_settings_without_mismatches_are_exactly_those_the_plugin_accepts(settings: dict[str, Any]) -> None:
    try:
        read_config(_Config, settings)
        is_accepted = True
    except Exception:  # noqa: BLE001 - only whether it is accepted counts
        is_accepted = False
    assert (find_mismatches(settings, SCHEMA) == []) is is_accepted
