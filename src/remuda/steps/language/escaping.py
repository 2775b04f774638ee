"""Delimiters of `${{ }}` expressions and their escaping; a separate module, so that the manager imports no parser."""

from typing import Any

OPENER, CLOSER = "${{", "}}"


def escape(value: Any) -> Any:
    """Return the value with each `${{` in its strings and keys escaped, so that it is not taken as an expression."""
    match value:
        case str():
            return value.replace(OPENER, "\\" + OPENER)
        case list() | tuple():
            return [escape(item) for item in value]
        case dict():
            return {escape(key): escape(item) for key, item in value.items()}
    return value
