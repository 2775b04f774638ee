"""Tells callers about parameters of a request that the cell does not honour, so that none is dropped in silence.

A parameter is unsupported if the type of the endpoint's parameters has no field for it. Its name is then in the header
`X-Remuda-Ignored` of the answer, unless its value is one that changes nothing here: empty, or the default value that
clients send along. A parameter that restricts access, or that decides what is created, is refused with 400 instead,
because ignoring it would do something else than the caller asked for.

The type of the parameters declares such values in the class variable `unsupported`."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from remuda.cell.http.edge.errors import bad_parameter

HEADER = "X-Remuda-Ignored"
_MAX_NAMES = 100
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_NOT_FIELDS = frozenset({"id", "page", "per_page", "private_token", "access_token", "job_token", "sudo"})

_NOT_FILTERS = frozenset({"pagination", "cursor", "order_by", "sort", "id_after", "id_before"})


class Unsupported(msgspec.Struct, frozen=True, kw_only=True):
    """GitLab's parameters that an endpoint does not honour, with the values that change nothing here."""

    ignored: Mapping[str, tuple[Any, ...]] = {}
    """Parameters that are ignored, and the values for which the caller is not told."""
    refused: Mapping[str, tuple[Any, ...]] = {}
    """Parameters that are refused, and the values for which they are not."""


def find_ignored(values: Mapping[str, Any], kind: Any, besides: Collection[str] = ()) -> list[str]:
    """Return the sorted names in `values` that the parameters' type `kind` has no field for, except those in `besides`
    and harmless values. Raises ApiError 400 for a parameter that is refused."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return []
    rules: Unsupported = getattr(kind, "unsupported", Unsupported())
    known = {field.encode_name for field in msgspec.structs.fields(kind)} | _NOT_FIELDS | set(besides)
    ignored = []
    for name, value in values.items():
        if name in known or value is None or value in ("", [], {}):
            continue
        if name in rules.refused:
            if not _is_one_of(value, rules.refused[name]):
                raise bad_parameter(
                    f"{name} is not supported here, and ignoring it would not do what you ask for; leave it out "
                    "(`remuda docs reference/http` lists what is supported)"
                )
        elif not _is_one_of(value, rules.ignored.get(name, ())):
            ignored.append(name)
    return sorted(ignored)


def find_ignored_filters(query: Mapping[str, str], known: Collection[str]) -> list[str]:
    """Return the sorted names of query parameters that a call which only reads does not honour. `known`: those that it
    declares. Orders are not listed: they change no content."""
    names = {name.partition("[")[0] for name, value in query.items() if value}
    return sorted(names - {name.partition("[")[0] for name in known} - _NOT_FIELDS - _NOT_FILTERS)


def header_text(names: Collection[str]) -> str:
    """Return the value of the header `X-Remuda-Ignored`. Odd names, which no client of GitLab sends, become `?`."""
    return ", ".join(dict.fromkeys(name if _NAME.fullmatch(name) else "?" for name in list(names)[:_MAX_NAMES]))


def _is_one_of(value: Any, harmless: Collection[Any]) -> bool:
    # In a form all values are text.
    return str(value).lower() in {str(other).lower() for other in harmless}
