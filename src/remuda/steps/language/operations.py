"""Operations on values of expressions without sensitive marks: conversion to text, truth, comparison, arithmetic.

A value is None, bool, int, float, str, list, or dict with str keys. Numbers are IEEE doubles; exact integers are stored
as int, so that they look the same in JSON. Invariant: values that passed `check_bounds` are at most `MAX_DEPTH` deep
and `MAX_SIZE` large (shared parts count each time), so functions here may recurse."""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from remuda.steps.language.errors import ExpressionError
from remuda.steps.language.sensitive import Sensitive

MAX_DEPTH = 100
MAX_SIZE = 200_000
"""Number of values inside a value."""
MAX_TEXT = 16 * 1024 * 1024
"""Characters of a text that expressions make."""

_EXACT = 2.0**53
_ORDER = ("null", "boolean", "number", "string", "array", "object")
_NUMBER = re.compile(r"[ \t\r\n]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t\r\n]*")


def kind(value: Any) -> str:
    """Return the name of the value's type in the expression language, such as "string" or "array"."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
    return "object"


def number(value: float) -> int | float:
    """Return a number as int if it is an exact integer. Raises ExpressionError if it is out of range for a double."""
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ExpressionError("the number is out of range")
    return int(value) if abs(value) <= _EXACT and value.is_integer() else value


def number_from(text: str) -> int | float:
    """Convert a text to a number: the function `num(text)` of expressions. Raises ExpressionError if it is none."""
    if not _NUMBER.fullmatch(text):
        raise ExpressionError("the text is not a number")
    return number(float(text))


def size(value: Any, limit: int) -> int:
    """Return the number of parts of a value, nested and repeated ones included. Stops counting at `limit`."""
    pending, count = [value], 0
    while pending and count < limit:
        item = pending.pop()
        count += 1
        if isinstance(item, Sensitive):
            item = item.value
        if isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)
    return count


def check_bounds(value: Any) -> Any:
    """Return the value. Raises ExpressionError if it has MAX_SIZE parts or is nested deeper than MAX_DEPTH levels."""
    if not isinstance(value, dict | list | tuple | Sensitive):
        return value
    if size(value, MAX_SIZE) >= MAX_SIZE:
        raise ExpressionError(f"the value has {MAX_SIZE} parts or more")
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [item.value if isinstance(item, Sensitive) else item for item in level]
        level = [
            child
            for item in level
            if isinstance(item, dict | list | tuple)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return value
    raise ExpressionError(f"the value is nested more than {MAX_DEPTH} levels deep")


def text_of(value: Any) -> str:
    """Return a value as text for a string: strings unchanged, others as compact JSON with sorted keys."""
    return value if isinstance(value, str) else _json(value)


def number_text(value: float) -> str:
    """Format a number with the fewest digits that identify it; with an exponent only below 1e-6 and from 1e21 on."""
    if isinstance(value, int) and abs(value) <= _EXACT:
        return str(value)
    value = float(number(value))
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        return plain_number(value)
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent):+d}"


def plain_number(value: float) -> str:
    value = float(number(value))
    if value == 0:
        return "0"
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def truthy(value: Any) -> bool:
    """False for false, null, 0, "", [] and {}, True for all other values."""
    return bool(value)


def add(left: Any, right: Any) -> Any:
    """Add two numbers, or concatenate two strings. Raises ExpressionError for other types."""
    if isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > MAX_TEXT:
            raise ExpressionError(f"the text has more than {MAX_TEXT} characters")
        return left + right
    return arithmetic("+", left, right)


def arithmetic(operator: str, left: Any, right: Any) -> int | float:
    """Apply an operator, such as `+`, to two numbers. Raises ExpressionError for other types and division by zero."""
    if kind(left) != "number" or kind(right) != "number":
        expected = "two numbers or two strings" if operator == "+" else "two numbers"
        raise ExpressionError(f"{expected} are needed, not {kind(left)} and {kind(right)}")
    first, second = float(number(left)), float(number(right))
    match operator:
        case "+":
            return number(first + second)
        case "-":
            return number(first - second)
        case "*":
            return number(first * second)
    if second == 0:
        raise ExpressionError("division by zero")
    return number(first / second if operator == "/" else math.fmod(first, second))


def compare(operator: str, left: Any, right: Any) -> bool:
    match operator:
        case "==":
            return _compare(left, right) == 0
        case "!=":
            return _compare(left, right) != 0
        case "<":
            return _compare(left, right) < 0
        case "<=":
            return _compare(left, right) <= 0
        case ">":
            return _compare(left, right) > 0
    return _compare(left, right) >= 0


def _compare(left: Any, right: Any) -> int:
    """Return < 0 if `left` is smaller, 0 if equal, else > 0. Different types are ordered by type, never equal."""
    left_kind = kind(left)
    if left_kind != kind(right):
        return _ORDER.index(left_kind) - _ORDER.index(kind(right))
    if left_kind == "array":
        for first, other in zip(left, right, strict=False):
            if order := _compare(first, other):
                return order
        return len(left) - len(right)
    if left_kind == "object":
        if len(left) != len(right):
            return len(left) - len(right)
        if order := _compare(sorted(left), sorted(right)):
            return order
        return next((order for key in sorted(left) if (order := _compare(left[key], right[key]))), 0)
    # Code points sort like their UTF-8 bytes.
    return 0 if left_kind == "null" else int(left > right) - int(left < right)


def _json(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number_text(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{','.join(map(_json, value))}]"
    return f"{{{','.join(f'{_json(key)}:{_json(value[key])}' for key in sorted(value))}}}"
