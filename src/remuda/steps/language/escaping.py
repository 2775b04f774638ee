"""The delimiters of expressions, and how to escape them. No I/O.

Separate from `template`, which parses such texts, because the manager only writes them and should not import the
parser.
"""

from typing import Any

OPENER, CLOSER = "${{", "}}"


def escape(value: Any) -> Any:
    """Return the value with `${{` escaped in all its strings, so that data can be put into a definition without being
    evaluated."""
    match value:
        case str():
            return value.replace(OPENER, "\\" + OPENER)
        case list() | tuple():
            return [escape(item) for item in value]
        case dict():
            return {escape(key): escape(item) for key, item in value.items()}
    return value
