"""Finds the program of a plugin by its name, and lists all plugins.

`plugin = "aws"` is an installed version, else `fleeting-plugin-aws` on PATH or beside the running Python. For a full
name (`fleeting-plugin-aws`) installed versions come last, as for gitlab-runner. A name with a repository or a `:` is an
installed version, unless it is the path of a program. A bare name is never a file of the working directory."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.references import (
    Reference,
    Version,
    folder_name,
    parse_reference,
    parse_version,
    version_of_folder,
)
from remuda.lib.dataclass import dataclass
from remuda.plugins.programs import find_on_path, is_program, path_folders

PREFIX = "fleeting-plugin-"
PROGRAM = "plugin"
"""Name of the program in a version's folder."""
FOLDER = "FLEETING_PLUGIN_PATH"
ENTRY_POINTS = "remuda.fleeting"
_PATH = re.compile(r"(/|\./|\.\./|~/)")


class Where(StrEnum):
    PATH = "path"  # a path in the configuration
    INSTALLED = "installed"  # a version in the plugin folder
    ON_PATH = "on PATH"  # fleeting-plugin-NAME on PATH
    DISTRIBUTION = "distribution"  # a Python distribution that is installed for the running Python


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlugin:
    name: str
    where: Where
    program: Path
    version: str = ""
    """Empty: unknown without running the program."""


def places(name: str) -> tuple[Where, ...]:
    """Return where plugin `name` is searched, in order: as path, installed versions, PATH, Python distributions."""
    if _PATH.match(name):
        return (Where.PATH,)
    if "/" in name:
        return (Where.PATH, Where.INSTALLED)
    if ":" in name:
        return (Where.INSTALLED,)
    if name.startswith(PREFIX):
        return (Where.ON_PATH, Where.DISTRIBUTION, Where.INSTALLED)
    return (Where.INSTALLED, Where.ON_PATH, Where.DISTRIBUTION)


def plugin_folder(env: Mapping[str, str] = os.environ) -> Path:
    """The folder in which plugin versions are installed, shared with gitlab-runner."""
    if folder := env.get(FOLDER):
        return Path(folder)
    return Path(env.get("HOME") or Path.home(), ".config/fleeting/plugins")


def find_program(name: str, env: Mapping[str, str] = os.environ) -> str:
    """Absolute path of a plugin's program. Raises PermanentError with the places searched if it is missing."""
    full_name = name if name.startswith(PREFIX) else f"{PREFIX}{name}"
    for where in places(name):
        program = None
        if where is Where.PATH:
            program = Path(os.path.expanduser(name))
        elif where is Where.INSTALLED:
            with suppress(PermanentError):  # not a valid reference, but it may be on PATH
                program = find_installed(parse_reference(name), plugin_folder(env))
        elif where is Where.ON_PATH:
            program = find_on_path(full_name, env)
        elif _find_entry_point(full_name):
            program = program_of_distribution(full_name)
        if program is not None and is_program(program):
            return str(program.absolute())
    raise PermanentError(_explain_missing(name, full_name, env))


def find_installed(reference: Reference, folder: Path) -> Path | None:
    """The program of the highest installed version that fits the reference's constraint; None if there is none."""
    best = reference.constraint.best(versions(reference, folder))
    return None if best is None else version_folder(reference, best, folder) / PROGRAM


def version_folder(reference: Reference, version: Version, folder: Path) -> Path:
    return folder / reference.place / folder_name(version)


def versions(reference: Reference, folder: Path) -> list[Version]:
    """Installed versions of a plugin, ascending, without folders that lack a program."""
    try:
        names = os.listdir(folder / reference.place)
    except OSError:
        return []
    candidates = [version_of_folder(name) for name in names if is_program(folder / reference.place / name / PROGRAM)]
    return sorted((version for version in candidates if version is not None), key=lambda version: version.order)


def list_plugins(env: Mapping[str, str] = os.environ) -> list[FoundPlugin]:
    """All plugins of this machine by name, each once; of equal names: installed (newest first), PATH, distributions."""
    every: dict[Path, FoundPlugin] = {}
    for plugin in (*_list_installed(plugin_folder(env)), *_list_on_path(env), *_list_distributions()):
        first = every.setdefault(plugin.program, plugin)
        every[plugin.program] = replace(first, version=first.version or plugin.version)
    newest_first = sorted(every.values(), key=_version_order, reverse=True)
    return sorted(newest_first, key=lambda plugin: (plugin.name, list(Where).index(plugin.where)))


def program_of_distribution(program: str) -> Path:
    """Path at which pip installs the program of this name for the Python that runs this code."""
    return Path(sys.executable).parent / program


def _find_entry_point(program: str) -> EntryPoint | None:
    return next((entry for entry in entry_points(group=ENTRY_POINTS) if f"{PREFIX}{entry.name}" == program), None)


def _list_installed(folder: Path) -> Iterator[FoundPlugin]:
    for top, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        here = Path(top)
        version = version_of_folder(here.name)
        if version is None or PROGRAM not in files or not is_program(here / PROGRAM):
            continue
        folders.clear()
        try:
            name = parse_reference(str(here.parent.relative_to(folder))).short
        except PermanentError:
            continue
        yield FoundPlugin(name=name, where=Where.INSTALLED, program=here / PROGRAM, version=version.text)


def _list_distributions() -> Iterator[FoundPlugin]:
    for entry in entry_points(group=ENTRY_POINTS):
        program = program_of_distribution(f"{PREFIX}{entry.name}")
        if is_program(program):
            version = entry.dist.version if entry.dist is not None else ""
            yield FoundPlugin(name=entry.name, where=Where.DISTRIBUTION, program=program, version=version)


def _list_on_path(env: Mapping[str, str]) -> Iterator[FoundPlugin]:
    for folder in path_folders(env):
        for program in sorted(folder.glob(f"{PREFIX}*")):
            if is_program(program):
                yield FoundPlugin(name=program.name.removeprefix(PREFIX), where=Where.ON_PATH, program=program)


def _version_order(plugin: FoundPlugin) -> tuple[Any, ...]:
    """Sort key by version for installed plugins. Other plugins have equal keys, so they keep the order of PATH."""
    version = parse_version(plugin.version) if plugin.where is Where.INSTALLED else None
    return version.order if version is not None else ()


def _explain_missing(name: str, full_name: str, env: Mapping[str, str]) -> str:
    if places(name) == (Where.PATH,):
        return f"{name}: there is no such program, or it may not be executed; is the path right?"
    reference, folder = parse_reference(name), plugin_folder(env)
    installed = ", ".join(version.text for version in versions(reference, folder))
    searched = [
        f"a version of {reference.text} in {folder / reference.place} ({installed or 'none'} installed)",
        *([f"a program {full_name} on PATH and beside {sys.executable}"] if Where.ON_PATH in places(name) else []),
    ]
    advice = [f"install it, by `remuda plugin install {name}` or with pip"]
    if (distribution := _find_entry_point(full_name)) is not None and distribution.dist is not None:
        advice = [f"{program_of_distribution(full_name)} is missing: install {distribution.dist.name} again"]
    advice.append(f"write ./{name} for the file of this folder" if Path(name).is_file() else "or give its path")
    return f"there is no plugin {name}. Looked for: {'; '.join(searched)}. To do: {', '.join(advice)}"
