"""Warns about autoscaling plugins that are missing on this host, or whose settings violate their schema. These are not
errors, because the manager may run on another host, and a plugin checks its settings itself when it starts."""

import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.plugin_search import find_program
from remuda.fleeting.port import Capability
from remuda.fleeting.program_info import CAPABILITIES_KEY, ask_schema, ask_version
from remuda.manager.config.lines import find_lines, line_of_message
from remuda.manager.config.plugin_schema import find_mismatches
from remuda.manager.config.ssh import table_of
from remuda.manager.config.values import WITH_MACHINES, Remark

DOCKER_MACHINE_PLUGIN = "docker-machine"
_VARIABLE = re.compile(r"\$(\w+|\{\w+\})")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The result of searching for a plugin on this host and asking it for its schema."""

    problem: str = ""
    """Why it was not found; empty: it was."""
    doubt: str = ""
    """Why it may not be a plugin, or may not run here."""
    schema: dict[str, Any] | None = None
    """JSON schema of its settings; None: unknown."""
    capabilities: tuple[str, ...] | None = None
    """Its capabilities; None: unknown."""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    where: str
    """The section, such as `runners[0].autoscaler`."""
    plugin: str
    settings: Mapping[str, Any] | None
    """None: they are keys of Docker Machine."""
    scales: str = ""
    """The key that makes it scale by itself; empty: it does not."""

    @property
    def key(self) -> str:
        return self.where if self.settings is None else f"{self.where}.plugin"


def look_at(plugin: str) -> Look:
    """Find a plugin on this host, and run it to get its schema. Blocks for at most a few seconds."""
    try:
        program = Path(find_program(plugin))
    except PermanentError as error:
        return Look(problem=str(error))
    schema = ask_schema(program)
    if schema is None:
        try:
            ask_version(program)
        except PermanentError as error:
            return Look(doubt=str(error))
    names = None if schema is None else schema.get(CAPABILITIES_KEY)
    return Look(schema=schema, capabilities=tuple(map(str, names)) if isinstance(names, list) else None)


def is_on_path(program: str) -> bool:
    return shutil.which(os.path.expanduser(program)) is not None


def find_uses(document: Mapping[str, Any]) -> list[Use]:
    """Return all sections of a parsed configuration file that use a plugin. Values of a wrong type are skipped."""
    uses = []
    runners = document.get("runners")
    for index, runner in enumerate(runners if isinstance(runners, list) else []):
        if not isinstance(runner, Mapping) or runner.get("executor") not in WITH_MACHINES:
            continue
        where, own = f"runners[{index}]", table_of(runner, "remuda")
        if own.get("machines"):
            continue
        if runner["executor"] == "docker+machine":
            uses.append(Use(where=f"{where}.machine", plugin=DOCKER_MACHINE_PLUGIN, settings=None))
            continue
        scales = f"{where}.remuda.plugin_scales" if own.get("plugin_scales") is True else ""
        sections = [(f"{where}.autoscaler", table_of(runner, "autoscaler"))]
        fallback = own.get("fallback")
        sections += [
            (f"{where}.remuda.fallback[{number}]", group)
            for number, group in enumerate(fallback if isinstance(fallback, list) else [])
            if isinstance(group, Mapping)
        ]
        for name, section in sections:
            if isinstance(plugin := section.get("plugin"), str) and plugin:
                uses.append(Use(where=name, plugin=plugin, settings=table_of(section, "plugin_config"), scales=scales))
                scales = ""
    return uses


def warn_of_plugins(
    text: str, *, look: Callable[[str], Look] = look_at, has_program: Callable[[str], bool] = is_on_path
) -> list[Remark]:
    """Return warnings about the plugins in a configuration text; none if it is not TOML. `look` finds a plugin."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return []
    uses = find_uses(document)
    looks = {plugin: look(plugin) for plugin in dict.fromkeys(use.plugin for use in uses)}
    lines = find_lines(text)
    warnings = [text for use in uses for text in find_doubts(use, looks[use.plugin], has_program)]
    return [Remark(line=line_of_message(text, lines), text=text) for text in warnings]


def find_doubts(use: Use, seen: Look, has_program: Callable[[str], bool]) -> Iterator[str]:
    """Yield warnings about one use of a plugin, each beginning with the key. `seen` is what `look_at` found."""
    if seen.problem:
        yield f"{use.key}: on this host {seen.problem}. If the manager runs on another host, install it there"
        return
    if seen.doubt:
        yield f"{use.key}: {seen.doubt} To see what is wrong, run: remuda plugin check {use.plugin}"
    if DOCKER_MACHINE_PLUGIN in Path(use.plugin.partition(":")[0]).name:
        program = str((use.settings or {}).get("program") or "docker-machine")
        if not has_program(program):
            yield (
                f"{use.key}: the plugin {use.plugin} runs {program}, and there is no such program on this host; "
                "install Docker Machine where the manager runs"
            )
    for key in _keys_of_variables(use.settings or {}):
        yield (
            f"{use.where}.plugin_config.{key}: looks like a variable, but the plugin gets it unchanged: variables are "
            "replaced only in url and token of a runner. A plugin may read the manager's environment itself"
        )
    if seen.schema is not None and use.settings is not None:
        for key, text in find_mismatches(use.settings, seen.schema):
            yield f"{use.where}.plugin_config{f'.{key}' if key else ''}: {text} (says the plugin {use.plugin})"
    if use.scales and seen.capabilities is not None and Capability.PROVIDER not in seen.capabilities:
        has = ", ".join(seen.capabilities) or "nothing"
        yield f"{use.scales}: the plugin {use.plugin} is no provider (it has {has}): it takes no job; remove this key"


def _keys_of_variables(value: Any, where: str = "") -> Iterator[str]:
    """Yield the keys of settings, also nested ones, whose value is just `$NAME` or `${NAME}`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _keys_of_variables(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _keys_of_variables(item, f"{where}[{number}]")
    elif isinstance(value, str) and _VARIABLE.fullmatch(value):
        yield where
