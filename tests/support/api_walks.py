"""Compares what a client of the API sent with what came back, so that no field is dropped silently."""

from collections.abc import Iterator
from typing import Any

Call = dict[str, Any]
"""A call of a client: its name (`call`), the fields that it sent (`sent`), and the answer (`got`)."""


def find_dropped_fields(call: Call) -> Iterator[str]:
    """Yield a text for each field that was sent and did not come back with the same value."""
    got = call["got"] or {}
    for name, value in (call["sent"] or {}).items():
        if name not in got:
            yield f"{call['call']}: {name} is missing in the answer"
        elif _comparable(got[name]) != _comparable(value):
            yield f"{call['call']}: {name} was sent as {value!r} and came back as {got[name]!r}"


def _comparable(value: Any) -> Any:
    return sorted(map(str, value)) if isinstance(value, list) else value
