"""Whether the plugins that a configuration names are on this host, and what they say about their settings.

Decided here: what is worth a warning. It never is more than that: the manager may run elsewhere, and a plugin judges
its settings itself when it starts. `look_at` runs programs, with a deadline; the rest is pure. `remuda manager check`
and `doctor` are the callers: a manager that starts learns all of this from the plugin.
"""

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
from remuda.manager.config.plugin_schema import mismatches
from remuda.manager.config.values import WITH_MACHINES, Remark

DOCKER_MACHINE = "docker-machine"
_VARIABLE = re.compile(r"\$(\w+|\{\w+\})")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a plugin."""

    problem: str = ""
    """Why there is none; empty: it is there."""
    doubt: str = ""
    """Why it may not be one, or not run here."""
    schema: dict[str, Any] | None = None
    """Of its settings; None: it does not say."""
    capabilities: tuple[str, ...] | None = None
    """What it can; None: it does not say."""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """A place of a configuration where a plugin is used."""

    where: str
    """The section, such as `runners[0].autoscaler`."""
    plugin: str
    settings: Mapping[str, Any] | None
    """None: they stand in the words of Docker Machine."""
    scales: str = ""
    """The key by which it is to scale by itself; empty: it is not."""

    @property
    def at(self) -> str:
        """The key that names it."""
        return self.where if self.settings is None else f"{self.where}.plugin"


def look_at(plugin: str) -> Look:
    """Look for a plugin, and ask it. Blocks for a few seconds at most."""
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
    told = None if schema is None else schema.get(CAPABILITIES_KEY)
    return Look(schema=schema, capabilities=tuple(map(str, told)) if isinstance(told, list) else None)


def on_path(program: str) -> bool:
    """Whether there is such a program, by its path or by its name on PATH."""
    return shutil.which(os.path.expanduser(program)) is not None


def uses(document: Mapping[str, Any]) -> list[Use]:
    """The plugins of a document's runners. What has the wrong type is said elsewhere."""
    found = []
    runners = document.get("runners")
    for index, runner in enumerate(runners if isinstance(runners, list) else []):
        if not isinstance(runner, Mapping) or runner.get("executor") not in WITH_MACHINES:
            continue
        where, own = f"runners[{index}]", _table(runner.get("remuda"))
        if own.get("machines"):
            continue
        if runner["executor"] == "docker+machine":
            found.append(Use(where=f"{where}.machine", plugin=DOCKER_MACHINE, settings=None))
            continue
        scales = f"{where}.remuda.plugin_scales" if own.get("plugin_scales") is True else ""
        sections = [(f"{where}.autoscaler", _table(runner.get("autoscaler")))]
        fallback = own.get("fallback")
        sections += [
            (f"{where}.remuda.fallback[{number}]", _table(one))
            for number, one in enumerate(fallback if isinstance(fallback, list) else [])
        ]
        for at, section in sections:
            if isinstance(plugin := section.get("plugin"), str) and plugin:
                found.append(Use(where=at, plugin=plugin, settings=_table(section.get("plugin_config")), scales=scales))
                scales = ""
    return found


def about_plugins(
    text: str, *, look: Callable[[str], Look] = look_at, has_program: Callable[[str], bool] = on_path
) -> list[Remark]:
    """What to say of the plugins in a file's text, with the lines; nothing if it is no TOML."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return []
    found = uses(document)
    looks = {plugin: look(plugin) for plugin in dict.fromkeys(use.plugin for use in found)}
    lines = find_lines(text)
    said = [one for use in found for one in doubts_of(use, looks[use.plugin], has_program)]
    return [Remark(line=line_of_message(one, lines), text=one) for one in said]


def doubts_of(use: Use, seen: Look, has_program: Callable[[str], bool]) -> Iterator[str]:
    """What to say of one plugin; each begins with its key."""
    if seen.problem:
        yield f"{use.at}: on this host {seen.problem}. If the manager runs on another host, it has to be there"
        return
    if seen.doubt:
        yield f"{use.at}: {seen.doubt} What is wrong shows: remuda plugin check {use.plugin}"
    if DOCKER_MACHINE in Path(use.plugin.partition(":")[0]).name:
        program = str((use.settings or {}).get("program") or DOCKER_MACHINE)
        if not has_program(program):
            yield (
                f"{use.at}: the plugin {use.plugin} runs {program}, and there is no such program on this host; install "
                "Docker Machine where the manager runs"
            )
    for key in _variables(use.settings or {}):
        yield (
            f"{use.where}.plugin_config.{key}: looks like a variable, and reaches the plugin as it stands: only url "
            "and token of a runner are filled in. A plugin has the manager's environment, and may read it there"
        )
    if seen.schema is not None and use.settings is not None:
        for key, text in mismatches(use.settings, seen.schema):
            yield f"{use.where}.plugin_config{f'.{key}' if key else ''}: {text} (says the plugin {use.plugin})"
    if use.scales and seen.capabilities is not None and Capability.PROVIDER not in seen.capabilities:
        able = ", ".join(seen.capabilities) or "nothing"
        yield f"{use.scales}: the plugin {use.plugin} is no provider (it has {able}): it takes no job; remove this key"


def _variables(value: Any, where: str = "") -> Iterator[str]:
    """The settings that are nothing but `$NAME` or `${NAME}`."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _variables(one, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _variables(one, f"{where}[{number}]")
    elif isinstance(value, str) and _VARIABLE.fullmatch(value):
        yield where


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
