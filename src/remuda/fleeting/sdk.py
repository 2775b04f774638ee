"""SDK for plugins in Python: the base class `Plugin`, and reading its configuration.

Methods are called concurrently in one event loop: call a library that blocks with `asyncio.to_thread`. Raise
TemporaryError for what may work later, PermanentError for what will not; anything else is reported as a fault of the
plugin. `update` should return an instance that cannot be looked up as UNKNOWN: one that is missing several times in a
row counts as gone, and its jobs are lost. `increase` and `decrease` that succeed in part should return that part.
Optional abilities are further methods (the Protocols of `port`), which are announced to the host automatically."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from msgspec import inspect

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.port import CAPABILITIES, ConnectInfo, InstanceState, ProviderInfo, Settings
from remuda.lib.durations import parse_duration

_KINDS = {
    "object": "a table",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "duration": "a span of time",
}
_EXPECTED = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`)?(.*)")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `([^`]+)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
ConfigT = TypeVar("ConfigT", bound=msgspec.Struct)


class NoConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration type (`config_type`) for a plugin that has no settings of its own."""


class Plugin(ABC, Generic[ConfigT]):
    """Base class of an instance group plugin."""

    name: ClassVar[str]
    """`aws` of `fleeting-plugin-aws`."""
    version: ClassVar[str] = "0.0.0"
    config_type: type[ConfigT]
    """The struct of `plugin_config`. Unknown keys are refused, also in nested tables. A `timedelta` is written `30s` or
    `1h30m`, as everywhere in config.toml, or as a number of seconds."""

    @abstractmethod
    async def init(self, config: ConfigT, settings: Settings) -> ProviderInfo:
        """Start the plugin. Called once, before all other calls. Raise PermanentError for a wrong setting, with a text
        that says what is right. The capabilities, and the version if it is empty, are added to the result."""

    @abstractmethod
    async def update(self) -> Mapping[str, InstanceState]:
        """Return the states of all instances by name."""

    @abstractmethod
    async def increase(self, count: int) -> int:
        """Request `count` more instances without waiting for them. Return how many the provider accepted."""

    @abstractmethod
    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        """Request the deletion of instances. Return the accepted ones; one that is gone already is accepted."""

    @abstractmethod
    async def connect_info(self, instance: str) -> ConnectInfo:
        """Return how to connect to an instance. Start from `settings.connector` of `init` and complete it."""

    async def shutdown(self) -> None:
        """Remove resources that the plugin created for all instances together. Instances stay."""


def capabilities(plugin: object) -> frozenset[str]:
    return frozenset(name.value for name, ability in CAPABILITIES.items() if isinstance(plugin, ability))


def complete_info(info: ProviderInfo, plugin: Plugin[Any]) -> ProviderInfo:
    return ProviderInfo(
        id=info.id,
        max_size=info.max_size,
        version=info.version or plugin.version,
        build_info=info.build_info,
        capabilities=info.capabilities | capabilities(plugin),
    )


def find_mistake(plugin: object) -> str:
    """What is wrong with the class of the object `plugin`, as text for its author; empty if nothing is."""
    if isinstance(plugin, type):
        return f"{plugin.__name__} is a class; an object of it is wanted: {plugin.__name__}()"
    kind = type(plugin).__name__
    if not isinstance(plugin, Plugin):
        return f"{kind} is not a remuda.fleeting.Plugin; derive it from that class"
    for name, example in (("name", 'name = "cloud"'), ("config_type", "config_type = Config, or NoConfig")):
        if not hasattr(plugin, name):
            return f"{kind} has no {name}; write {example} in the class"
    return _find_struct_mistake(plugin.config_type)


def read_config(kind: type[ConfigT], config: Any) -> ConfigT:
    """Convert `plugin_config` to the struct `kind`. Raises PermanentError, which names the key of an invalid value."""
    if wrong := _find_struct_mistake(kind):
        raise PermanentError(wrong)
    values = {} if config is None else config
    if not isinstance(values, Mapping):
        raise PermanentError(f"plugin_config has to be a table, not {type(values).__name__}")
    prepared = _prepare(inspect.type_info(kind), dict(values), "")
    try:
        return msgspec.convert(prepared, kind)
    except msgspec.ValidationError as error:
        raise PermanentError(f"plugin_config: {in_words(_with_keys(kind, prepared, str(error)))}") from error


def _find_struct_mistake(kind: object) -> str:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return ""
    shown = kind.__name__ if isinstance(kind, type) else repr(kind)
    return f"config_type is {shown}; it has to be a class Config(msgspec.Struct, frozen=True, kw_only=True)"


def _prepare(kind: inspect.Type, value: Any, where: str) -> Any:
    """Return `value`, which should have the type `kind`, with durations parsed. Raises PermanentError for mistakes that
    msgspec does not find or describes badly, such as unknown keys. `where`: path of the value, for errors."""
    match kind:
        case inspect.UnionType(types=kinds):
            fitting = [option for option in kinds if _has_form_of(option, value)]
            return _prepare(fitting[0], value, where) if len(fitting) == 1 else value
        case inspect.TimeDeltaType():
            return _span(value, where)
        case inspect.LiteralType(values=allowed):
            _choose(value, allowed, where)
        case inspect.EnumType(cls=choices):
            _choose(value, [choice.value for choice in choices], where)
        case inspect.DictType(value_type=inner) if isinstance(value, Mapping):
            return {key: _prepare(inner, item, _below(where, key)) for key, item in value.items()}
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner) if isinstance(value, list):
            return [_prepare(inner, item, f"{where}[{number}]") for number, item in enumerate(value)]
        case inspect.StructType(fields=fields, tag_field=tag) if isinstance(value, Mapping):
            types = {field.encode_name: field.type for field in fields}
            for key in value:
                if key not in types and key != tag:
                    raise PermanentError(
                        f"plugin_config: there is no setting {_below(where, key)}; {_nearest(key, types, where)}"
                    )
            return {
                key: _prepare(types.get(key, inspect.AnyType()), item, _below(where, key))
                for key, item in value.items()
            }
    return value


def _has_form_of(kind: inspect.Type, value: Any) -> bool:
    """True if `value` can have the type `kind`, a member of a union, as far as its form (table, list, scalar) tells."""
    if isinstance(value, Mapping):
        return isinstance(kind, inspect.StructType | inspect.DictType)
    if isinstance(value, list):
        return isinstance(kind, inspect.ListType | inspect.VarTupleType)
    return value is not None and not isinstance(kind, inspect.NoneType | inspect.StructType | inspect.DictType)


def _span(value: Any, where: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number and (not isinstance(value, str) or value.lstrip("+-").startswith("P")):
        return value  # msgspec reads ISO 8601
    try:
        return timedelta(seconds=parse_duration(value))
    except (ValueError, OverflowError) as error:
        raise PermanentError(f"plugin_config: {where}: {error}") from None


def _choose(value: Any, allowed: Sequence[Any], where: str) -> None:
    if value not in allowed:
        names = [str(choice) for choice in allowed]
        near = f"; {_nearest(value, names)}" if get_close_matches(str(value), names, n=1) else ""
        raise PermanentError(f"plugin_config: {where} has to be one of {', '.join(names)}, not {value}{near}")


def _nearest(key: object, candidates: Iterable[str], where: str = "") -> str:
    names = list(candidates)
    near = get_close_matches(str(key), names, n=1)
    return f"did you mean {_below(where, near[0])}?" if near else f"known are: {', '.join(names) or 'none'}"


def _below(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


def _with_keys(kind: type[ConfigT], values: Any, text: str) -> str:
    """Replace each `[...]` in `text`, an error of msgspec for `values`, by the key that causes the error. The key is
    found by trial: with this key alone the error is the same."""
    problem, _, place = text.partition("`$")
    *parts, last = place.split("[...]")
    values = here = deepcopy(values)
    for number, part in enumerate(parts):
        for name, index in _STEP.findall(part):
            here = here[name or int(index)]
        for key, value in dict(here).items():
            others = dict(here)
            here.clear()
            here[key] = value
            if _problem(kind, values) == text:
                break
            here.update(others)
        parts[number] = f"{part}.{key}"
        here = here[key]
    return f"{problem}`${''.join(parts)}{last}" if parts else text


def _problem(kind: type[ConfigT], values: Any) -> str:
    try:
        msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def in_words(text: str) -> str:
    """An error message of msgspec, rewritten for the author of a configuration file."""
    problem, _, place = text.partition(" - at `$")
    where = place.rstrip("`").lstrip(".")
    if match := _EXPECTED.fullmatch(problem):
        kinds, got, more = match.groups()
        expected = " or ".join(_KINDS.get(kind, kind) for kind in kinds.split(" | "))
        return f"{where or 'it'} has to be {expected}" + (f", not {_KINDS.get(got, got)}" if got else more)
    if match := _FIELD.fullmatch(problem):
        name = f"{where}.{match[2]}" if where else match[2]
        return f"{name} is missing" if match[1] == "missing required" else f"there is no setting {name}"
    return f"{where}: {problem}" if where else problem
