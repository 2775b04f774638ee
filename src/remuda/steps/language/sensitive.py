"""The mark of a sensitive value. It travels with the value through expressions and comes off only on purpose.

A marked value is wrapped, so that nothing which expects a plain one can use it by accident. The mark may also be
deep inside: a struct with one sensitive member is not sensitive as a whole, but `is_sensitive` says yes to it.
Values are finite and not deeper than `operations.MAX_DEPTH`, so these functions may recurse.
"""

from typing import Any

from remuda.lib.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Sensitive:
    """A value nobody should see; it has no marked values inside. `repr` does not show it either."""

    value: Any

    def __repr__(self) -> str:
        return "Sensitive(...)"


def sensitive(value: Any) -> Sensitive:
    """The value with the mark, once."""
    return Sensitive(reveal(value))


def is_sensitive(value: Any) -> bool:
    """Whether the value or anything in it is marked."""
    match value:
        case Sensitive():
            return True
        case list() | tuple():
            return any(is_sensitive(item) for item in value)
        case dict():
            return any(is_sensitive(item) for item in value.values())
    return False


def reveal(value: Any) -> Any:
    """The same without any mark."""
    match value:
        case Sensitive():
            return value.value
        case list() | tuple():
            return [reveal(item) for item in value]
        case dict():
            return {key: reveal(item) for key, item in value.items()}
    return value


def conceal(value: Any, instead: str = "[MASKED]") -> Any:
    """What may be shown: every marked part replaced."""
    match value:
        case Sensitive():
            return instead
        case list() | tuple():
            return [conceal(item, instead) for item in value]
        case dict():
            return {key: conceal(item, instead) for key, item in value.items()}
    return value
