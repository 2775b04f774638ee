"""Marks values as sensitive. A mark stays with the value through expressions and is removed only explicitly.

A marked value is wrapped, so that code that expects a plain value cannot use it by accident. If only one member of a
struct is sensitive, only that member is wrapped. Values are not nested deeper than `operations.MAX_DEPTH`, so functions
may recurse."""

from typing import Any

from remuda.lib.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Sensitive:
    """Wrapper of a secret value, which itself contains no wrapped values. Its `repr` does not show the value."""

    value: Any

    def __repr__(self) -> str:
        return "Sensitive(...)"


def sensitive(value: Any) -> Sensitive:
    """Return the whole value wrapped as sensitive. Parts of it that were wrapped before are unwrapped."""
    return Sensitive(reveal(value))


def is_sensitive(value: Any) -> bool:
    match value:
        case Sensitive():
            return True
        case list() | tuple():
            return any(is_sensitive(item) for item in value)
        case dict():
            return any(is_sensitive(item) for item in value.values())
    return False


def reveal(value: Any) -> Any:
    """Return the value with all sensitive marks removed, those of the value itself and of its parts."""
    match value:
        case Sensitive():
            return value.value
        case list() | tuple():
            return [reveal(item) for item in value]
        case dict():
            return {key: reveal(item) for key, item in value.items()}
    return value


def conceal(value: Any, instead: str = "[MASKED]") -> Any:
    """Return the value with each part that is marked sensitive replaced by `instead`, for display."""
    match value:
        case Sensitive():
            return instead
        case list() | tuple():
            return [conceal(item, instead) for item in value]
        case dict():
            return {key: conceal(item, instead) for key, item in value.items()}
    return value
