"""What the author of a plugin in Python writes: one class, a few small methods, and a struct with its configuration.

Methods may be called at the same time as others. What a method raises the host gets as its text: TemporaryError what
may work later, PermanentError what will not, anything else as a fault of the plugin's. `update` leaves out what cannot
be looked up rather than to fail for one instance; `increase` and `decrease` that half succeed return what succeeded and
log the rest, for nothing is returned by a method that raises. Optional abilities are further methods: `heartbeat`,
`suspend` and `resume`, `stats`, `recover` (the Protocols of `port`); having them is announcing them.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.port import CAPABILITIES, ConnectInfo, InstanceState, ProviderInfo, Settings

_KINDS = {
    "object": "a table",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
_EXPECTED = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`)?(.*)")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `([^`]+)`")
ConfigT = TypeVar("ConfigT", bound=msgspec.Struct)


class NoConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Of a plugin that has nothing to be configured."""


class Plugin(ABC, Generic[ConfigT]):
    """An instance group."""

    name: ClassVar[str]
    """`aws` of `fleeting-plugin-aws`."""
    version: ClassVar[str] = "0.0.0"
    config_type: type[ConfigT]
    """The struct of `plugin_config`; a key that it does not have is refused."""

    @abstractmethod
    async def init(self, config: ConfigT, settings: Settings) -> ProviderInfo:
        """Once, first. PermanentError says which setting is wrong, and what is right. Version and capabilities are
        filled in."""

    @abstractmethod
    async def update(self) -> Mapping[str, InstanceState]:
        """All instances."""

    @abstractmethod
    async def increase(self, count: int) -> int:
        """Ask the provider for that many more, without waiting for them; how many it accepted."""

    @abstractmethod
    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        """Ask the provider to delete these; those that it accepted. One that is gone already is accepted."""

    @abstractmethod
    async def connect_info(self, instance: str) -> ConnectInfo:
        """How to reach one; `settings.connector` of `init`, completed, is the connector to return."""

    async def shutdown(self) -> None:
        """Clean up what was made for all instances together. They stay."""


def capabilities(plugin: object) -> frozenset[str]:
    """What a plugin can, by its methods."""
    return frozenset(name.value for name, ability in CAPABILITIES.items() if isinstance(plugin, ability))


def completed(info: ProviderInfo, plugin: Plugin[Any]) -> ProviderInfo:
    """What is the same for all plugins."""
    return ProviderInfo(
        id=info.id,
        max_size=info.max_size,
        version=info.version or plugin.version,
        build_info=info.build_info,
        capabilities=info.capabilities | capabilities(plugin),
    )


def read_config(kind: type[ConfigT], given: Any) -> ConfigT:
    """`plugin_config` as the plugin's struct. PermanentError names the key."""
    values = {} if given is None else given
    if not isinstance(values, Mapping):
        raise PermanentError(f"plugin_config has to be a table, not {type(values).__name__}")
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for key in values:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            other = f"did you mean {near[0]}?" if near else f"known are: {', '.join(known) or 'none'}"
            raise PermanentError(f"plugin_config: there is no setting {key}; {other}")
    try:
        return msgspec.convert(dict(values), kind)
    except msgspec.ValidationError as error:
        raise PermanentError(f"plugin_config: {in_words(str(error))}") from error


def in_words(text: str) -> str:
    """What the library says about a value, for somebody who wrote it into a file. Pure."""
    problem, _, place = text.partition(" - at `$")
    where = place.rstrip("`").lstrip(".")
    if found := _EXPECTED.fullmatch(problem):
        kinds, got, more = found.groups()
        wanted = " or ".join(_KINDS.get(kind, kind) for kind in kinds.split(" | "))
        return f"{where or 'it'} has to be {wanted}" + (f", not {_KINDS.get(got, got)}" if got else more)
    if found := _FIELD.fullmatch(problem):
        name = f"{where}.{found[2]}" if where else found[2]
        return f"{name} is missing" if found[1] == "missing required" else f"there is no setting {name}"
    return f"{where}: {problem}" if where else problem
