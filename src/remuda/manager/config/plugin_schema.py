"""Checks a plugin's settings against the plugin's JSON schema. Unknown schema rules are ignored, so that a newer plugin
causes no false warnings. Messages never contain a setting's value, because it may be a password."""

import operator
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

DEEPEST = 64
"""Limit for circular references."""
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": Mapping,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
_WORDS = {
    "object": "a table",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}
_LIMITS = (
    ("minimum", operator.lt, "at least"),
    ("maximum", operator.gt, "at most"),
    ("exclusiveMinimum", operator.le, "more than"),
    ("exclusiveMaximum", operator.ge, "less than"),
)


def find_mismatches(settings: Any, schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the settings that violate the schema: pairs of a key, such as `qemu.disk`, and the problem."""
    return list(_check(settings, schema, "", schema, 0))


def _check(value: Any, rule: Any, where: str, schema: Mapping[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(rule, Mapping) or depth > DEEPEST:
        return
    if isinstance(rule.get("$ref"), str):
        yield from _check(value, _resolve(rule["$ref"], schema), where, schema, depth + 1)
    for key in ("anyOf", "oneOf"):
        if rules := _list(rule.get(key)):
            results = [list(_check(value, option, where, schema, depth + 1)) for option in rules]
            if all(results):
                yield from min(results, key=len)
    types = [kind for kind in (_list(rule.get("type")) or [rule.get("type")]) if isinstance(kind, str)]
    if types and not any(_is(value, kind) for kind in types):
        expected = " or ".join(_WORDS.get(kind, kind) for kind in types)
        yield where, f"has to be {expected}, not {_word(value)}"
        return
    if (allowed := _list(rule.get("enum"))) and value not in allowed:
        yield where, f"has to be one of {', '.join(map(str, allowed))}"
    if isinstance(value, str):
        yield from ((where, text) for text in _check_text(value, rule))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from ((where, text) for text in _check_number(value, rule))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _check(item, rule.get("items"), f"{where}[{number}]", schema, depth + 1)
    elif isinstance(value, Mapping):
        yield from _check_table(value, rule, where, schema, depth)


def _check_table(
    table: Mapping[str, Any], rule: Mapping[str, Any], where: str, schema: Mapping[str, Any], depth: int
) -> Iterator[tuple[str, str]]:
    properties = rule["properties"] if isinstance(rule.get("properties"), Mapping) else {}
    others = rule.get("additionalProperties")
    for key, value in table.items():
        here = f"{where}.{key}" if where else str(key)
        if key in properties:
            yield from _check(value, properties[key], here, schema, depth + 1)
        elif others is False:
            near = get_close_matches(str(key), list(properties), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(properties) or 'none'}"
            yield here, f"there is no such setting; {hint}"
        else:
            yield from _check(value, others, here, schema, depth + 1)
    for key in _list(rule.get("required")):
        if isinstance(key, str) and key not in table:
            yield f"{where}.{key}" if where else key, "is missing"


def _check_text(value: str, rule: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(pattern := rule.get("pattern"), str):
        try:
            is_right = re.search(pattern, value) is not None
        except re.error:
            is_right = True  # other dialects have more syntax
        if not is_right:
            yield f"is not of the form {pattern}"
    if isinstance(least := rule.get("minLength"), int) and len(value) < least:
        yield "must not be empty" if least == 1 else f"has to have at least {least} characters"


def _check_number(value: float, rule: Mapping[str, Any]) -> Iterator[str]:
    for key, is_wrong, words in _LIMITS:
        limit = rule.get(key)
        if isinstance(limit, int | float) and is_wrong(value, limit):
            yield f"has to be {words} {limit}"


def _resolve(reference: str, schema: Mapping[str, Any]) -> Any:
    """Return the part of the schema that a `$ref` points to; None if it is not found or outside of the schema."""
    node: Any = schema if reference.startswith("#") else None
    for part in filter(None, reference.removeprefix("#").split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _is(value: Any, kind: str) -> bool:
    if kind not in _TYPES:
        return True
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, float) and value.is_integer())


def _word(value: Any) -> str:
    return next((word for kind, word in _WORDS.items() if _is(value, kind)), f"a {type(value).__name__}")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
