"""The mark of a sensitive value. It stays with the value through expressions and is removed only on purpose.

A marked value is wrapped, so that code that expects a plain one cannot use it by accident. The mark may also be deep
inside: a struct with one sensitive member is not sensitive as a whole, but `is_sensitive` is true for it. Values are
finite and not deeper than `operations.MAX_DEPTH`, so these functions may recurse.
"""

from typing import Any

from remuda.lib.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Sensitive:
    """A secret value, without marked values inside. `repr` does not show it either."""

    value: Any

    def __repr__(self) -> str:
        return "Sensitive(...)"


def sensitive(value: Any) -> Sensitive:
    """The value with one mark around it."""
    return Sensitive(reveal(value))


def is_sensitive(value: Any) -> bool:
    """True if the value or anything in it is marked."""
    match value:
        case Sensitive():
            return True
        case list() | tuple():
            return any(is_sensitive(item) for item in value)
        case dict():
            return any(is_sensitive(item) for item in value.values())
    return False


def reveal(value: Any) -> Any:
    """The value without any marks."""
    match value:
        case Sensitive():
            return value.value
        case list() | tuple():
            return [reveal(item) for item in value]
        case dict():
            return {key: reveal(item) for key, item in value.items()}
    return value


def conceal(value: Any, instead: str = "[MASKED]") -> Any:
    """The value with every marked part replaced, for display."""
    match value:
        case Sensitive():
            return instead
        case list() | tuple():
            return [conceal(item, instead) for item in value]
        case dict():
            return {key: conceal(item, instead) for key, item in value.items()}
    return value
