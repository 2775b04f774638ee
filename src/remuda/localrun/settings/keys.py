"""The keys of settings files. They are the options of `PipelineOptions` and `RunOptions` under their names on the
command line without the dashes, so that a new option has its key at once. Only the user's own file may set a new
option, unless its declaration says that it is safe in a repository's file."""

from dataclasses import MISSING, Field, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from remuda.localrun.options import Options, PipelineOptions, RunOptions

CLASSES: tuple[type[Options], ...] = (PipelineOptions, RunOptions)


class Key(NamedTuple):
    """A key of settings files."""

    name: str
    field: str
    """The name of the field in the data class of options."""
    kind: Any
    """The type of the value: bool, int, str, Path, a Literal, or of the items if it is a list."""
    is_list: bool
    default: object
    is_safe: bool
    """The settings file of a repository may set it."""
    adds_up: bool
    is_assignment: bool
    variable: str

    def describe_kind(self) -> str:
        if self.is_list:
            return "a list of paths" if self.kind is Path else "a list of texts"
        if get_origin(self.kind) is Literal:
            return "one of: " + ", ".join(map(str, get_args(self.kind)))
        return {bool: "true or false", int: "a number", str: "a text", Path: "a path, written as text"}[self.kind]

    def read(self, value: object) -> object:
        """Return the value of a settings file as a value of the option; a path is not resolved yet. Raises TypeError if
        it is of another type."""
        if not self.is_list:
            return self._read_one(value)
        if isinstance(value, dict) and self.is_assignment:
            value = [f"{name}={self._read_one(each)}" for name, each in value.items()]
        if not isinstance(value, list):
            raise TypeError
        return tuple(self._read_one(each) for each in value)

    def _read_one(self, value: object) -> object:
        if get_origin(self.kind) is Literal:
            if value not in get_args(self.kind):
                raise TypeError
            return value
        kind = str if self.kind is Path else self.kind
        # True is an int in Python, but not in TOML.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise TypeError
        return Path(value) if self.kind is Path else value


@cache
def all_keys() -> dict[str, Key]:
    """Return all keys by name, in the order of the options."""
    keys = (_key(field, get_type_hints(each)[field.name]) for each in CLASSES for field in fields(each))  # type: ignore[arg-type]
    return {key.name: key for key in keys}


def _key(field: "Field[Any]", hint: Any) -> Key:
    facts = field.metadata
    if get_origin(hint) in (UnionType, Union):
        hint = next(each for each in get_args(hint) if each is not NoneType)
    is_list = get_origin(hint) is tuple
    return Key(
        name=facts.get("key") or field.name.replace("_", "-"),
        field=field.name,
        kind=get_args(hint)[0] if is_list else hint,
        is_list=is_list,
        default=None if field.default is MISSING else field.default,
        is_safe=facts.get("is_safe", False),
        adds_up=facts.get("adds_up", False),
        is_assignment=facts.get("is_assignment", False),
        variable=facts.get("variable", ""),
    )
