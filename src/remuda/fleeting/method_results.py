"""Checks the results of a plugin's methods, and finds the line in which a method failed. Pure.

Plugins are often written without a type checker, so a wrong result is refused with a message that names the method.
Messages show the types of values and not the values, which may be passwords; only names and states are shown."""

import inspect
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import PurePath
from traceback import walk_tb
from typing import Any, TypeVar, get_type_hints

import msgspec

from remuda.fleeting.errors import TemporaryError
from remuda.fleeting.port import CAPABILITIES, InstanceState
from remuda.fleeting.sdk import in_words

T = TypeVar("T")


async def wait_for(method: str, answer: "Awaitable[T]") -> T:
    """Await `answer`, which the plugin's method `method` returned. Raises TemporaryError if it is not awaitable."""
    if not inspect.isawaitable(answer):
        raise TemporaryError(f"{method}() is no coroutine; write `async def {method}`")
    return await answer


def a_value(method: str, result: object, kind: type[T]) -> T:
    """Return `result` if it has the type `kind`, and, for a dataclass, its fields have the declared types. Otherwise
    raises TemporaryError. `method`: name of the plugin's method, for the error."""
    if not isinstance(result, kind):
        raise TemporaryError(f"{method}() returned {_type_name(result)}; it has to return {_article(kind.__name__)}")
    if is_dataclass(kind):
        for name, hint in _hints(kind).items():
            _check_field(method, name, getattr(result, name), hint)
    return result


def a_count(method: str, result: object) -> int:
    if not isinstance(result, int):
        raise TemporaryError(
            f"{method}() returned {_type_name(result)}; it has to return how many were accepted, an int"
        )
    return result


def instances(method: str, result: object) -> Sequence[str]:
    """Return `result` as a list if it contains only instance names (strings). Otherwise raises TemporaryError."""
    if isinstance(result, str) or not isinstance(result, Iterable):
        raise TemporaryError(f"{method}() returned {_type_name(result)}; it has to return the names that were accepted")
    names = list(result)
    for name in names:
        if not isinstance(name, str):
            raise TemporaryError(f"{method}() returned {_type_name(name)} as a name of an instance; it has to be a str")
    return names


def several(method: str, result: object, kind: type[T]) -> Sequence[T]:
    """Return `result` as a list if all its values have the type `kind`. Otherwise raises TemporaryError."""
    if isinstance(result, str | Mapping) or not isinstance(result, Iterable):
        raise TemporaryError(f"{method}() returned {_type_name(result)}; it has to return a list of {kind.__name__}")
    return [a_value(method, value, kind) for value in result]


def states(method: str, result: object) -> Mapping[str, InstanceState]:
    if not isinstance(result, Mapping):
        expected = "a dict of names of instances and their InstanceState"
        raise TemporaryError(f"{method}() returned {_type_name(result)}; it has to return {expected}")
    for name, state in result.items():
        if not isinstance(name, str):
            raise TemporaryError(f"{method}() returned {name!r} as a name of an instance; it has to be a str")
        if not isinstance(state, InstanceState):
            what = f"{method}() returned {state!r} as the state of {name}"
            raise TemporaryError(f"{what}; it has to be an InstanceState, such as InstanceState.RUNNING")
    return dict(result)


def halves(plugin: object) -> Iterator[str]:
    """Find optional abilities that a plugin has only in part. Yields texts such as `suspend without resume`."""
    for ability in CAPABILITIES.values():
        names = [name for name in vars(ability) if not name.startswith("_")]
        present = [name for name in names if callable(getattr(plugin, name, None))]
        if present and present != names:
            missing = ", ".join(name for name in names if name not in present)
            yield f"{', '.join(present)} without {missing}"


def place(error: BaseException, package: str) -> str:
    """Innermost line of the error's traceback that is in `package` (the plugin's), as `plugin.py:45 in increase`; empty
    if there is none."""
    top = package.partition(".")[0]
    line_of_author = ""
    for frame, line in walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == top:
            line_of_author = f"{PurePath(frame.f_code.co_filename).name}:{line} in {frame.f_code.co_name}"
    return line_of_author


def _check_field(method: str, name: str, value: object, hint: Any) -> None:
    if is_dataclass(hint):
        assert isinstance(hint, type)
        if not isinstance(value, hint):
            what = f"{method}(): {name} has to be {_article(hint.__name__)}"
            raise TemporaryError(f"{what}, not {_type_name(value)}")
        for inner, kind in _hints(hint).items():
            _check_field(method, f"{name}.{inner}", getattr(value, inner), kind)
        return
    if isinstance(value, str) and hint is str:
        return  # a StrEnum member is a str, too
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        problem, _, inside = str(error).partition(" - at `$")
        path = f"{name}{inside.rstrip('`')}"
        raise TemporaryError(f"{method}(): {in_words(f'{problem} - at `$.{path}`')}") from None


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _type_name(value: object) -> str:
    return "None" if value is None else _article(type(value).__name__)


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"
