"""Tells callers about parameters of a request that the cell does not honour, so that none is dropped in silence.

A parameter is unsupported if the type of the endpoint's parameters has no field for it, also inside of another one
(`assets.links.filepath`). Its name is then in the header
`X-Remuda-Ignored` of the answer, unless its value is one that changes nothing here: empty, or the default value that
clients send along. A parameter that restricts access, or that decides what is created, is refused with 400 instead,
because ignoring it would do something else than the caller asked for.

The type of the parameters declares such values in the class variable `unsupported`."""

import re
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Union, get_args, get_origin

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
    if not _is_struct(kind):
        return []
    return sorted(set(_find_in_struct(values, kind, {*_NOT_FIELDS, *besides}, "")))


def _find_in_struct(values: Mapping[str, Any], kind: Any, besides: Collection[str], path: str) -> Iterator[str]:
    """Yield the names, each with `path` before it, of what the struct `kind` has no field for."""
    rules: Unsupported = getattr(kind, "unsupported", Unsupported())
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in values.items():
        if value is None or value in ("", [], {}):
            continue
        if name in fields:
            yield from _find_inside(value, fields[name], f"{path}{name}.")
        elif name in rules.refused:
            if not _is_one_of(value, rules.refused[name]):
                raise bad_parameter(
                    f"{path}{name} is not supported here, and ignoring it would not do what you ask for; leave it out "
                    "(`remuda docs reference/http` lists what is supported)"
                )
        elif name not in besides and not _is_one_of(value, rules.ignored.get(name, ())):
            yield f"{path}{name}"


def _find_inside(value: Any, kind: Any, path: str) -> Iterator[str]:
    """Yield what the structs in a field of the type `kind` have no fields for."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        for each in arguments:
            yield from _find_inside(value, each, path)
    elif isinstance(value, dict) and _is_struct(kind):
        yield from _find_in_struct(value, kind, (), path)
    elif isinstance(value, dict) and origin is dict:
        for each in value.values():
            yield from _find_inside(each, arguments[1], path)
    elif isinstance(value, list) and origin in (list, tuple):
        for each in value:
            yield from _find_inside(each, arguments[0], path)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


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
