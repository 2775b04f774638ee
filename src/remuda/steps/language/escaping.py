"""How an expression begins and ends in a text, and texts that hold none though they look like it. Pure.

Apart from `template`, which reads such texts: whoever only writes them, as the manager does, imports no more than
this.
"""

from typing import Any

OPENER, CLOSER = "${{", "}}"


def escape(value: Any) -> Any:
    """The value with texts that stand for themselves, for whoever makes a definition out of other data."""
    match value:
        case str():
            return value.replace(OPENER, "\\" + OPENER)
        case list() | tuple():
            return [escape(item) for item in value]
        case dict():
            return {escape(key): escape(item) for key, item in value.items()}
    return value
