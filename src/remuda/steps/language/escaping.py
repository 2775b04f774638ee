"""The delimiters of expressions in a text, and how to escape them. Pure.

Stands apart from `template`, which parses such texts, so that the manager, which only writes them, imports nothing
else.
"""

from typing import Any

OPENER, CLOSER = "${{", "}}"


def escape(value: Any) -> Any:
    """The value with all openers escaped, for definitions that are made out of other data."""
    match value:
        case str():
            return value.replace(OPENER, "\\" + OPENER)
        case list() | tuple():
            return [escape(item) for item in value]
        case dict():
            return {escape(key): escape(item) for key, item in value.items()}
    return value
