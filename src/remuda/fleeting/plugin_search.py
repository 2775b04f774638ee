"""Which program stands behind the name of a plugin, and which plugins there are.

`plugin = "aws"` is an installed version, else `fleeting-plugin-aws` on PATH or beside our own Python, where pip puts
it; `fleeting-plugin-aws` is looked for the other way round, as gitlab-runner does. A name with a repository or a `:` is
an installed version, unless it is a path of a program. Only executable files are programs: a folder that has a plugin's
name is none, and a bare name is never a file of the working directory. The host looks through this at each start of a
plugin, `remuda plugin list` shows all of it.
"""

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
"""The file in a version's folder."""
FOLDER = "FLEETING_PLUGIN_PATH"
ENTRY_POINTS = "remuda.fleeting"
_PATH = re.compile(r"(/|\./|\.\./|~/)")


class Where(StrEnum):
    """Where programs of plugins are."""

    PATH = "path"  # at a place that was named
    INSTALLED = "installed"  # in the plugin folder, by version
    ON_PATH = "on PATH"  # fleeting-plugin-NAME there
    DISTRIBUTION = "distribution"  # of Python, installed beside us


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlugin:
    """A plugin that is there."""

    name: str
    where: Where
    program: Path
    version: str = ""
    """Empty: only the program itself can tell."""


def places(name: str) -> tuple[Where, ...]:
    """Where to look for it, in order. Pure."""
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
    """Where versions are installed, ours and those of gitlab-runner."""
    if given := env.get(FOLDER):
        return Path(given)
    return Path(env.get("HOME") or Path.home(), ".config/fleeting/plugins")


def find_program(name: str, env: Mapping[str, str] = os.environ) -> str:
    """The program, by its whole path. PermanentError says where it was looked for, and what to do."""
    wanted = name if name.startswith(PREFIX) else f"{PREFIX}{name}"
    for where in places(name):
        found = None
        if where is Where.PATH:
            found = Path(os.path.expanduser(name))
        elif where is Where.INSTALLED:
            with suppress(PermanentError):  # no such name is installed; on PATH there may be one
                found = find_installed(parse_reference(name), plugin_folder(env))
        elif where is Where.ON_PATH:
            found = find_on_path(wanted, env)
        elif _find_entry_point(wanted):
            found = program_of_distribution(wanted)
        if found is not None and is_program(found):
            return str(found.absolute())
    raise PermanentError(_explain_missing(name, wanted, env))


def find_installed(reference: Reference, folder: Path) -> Path | None:
    """Of the highest installed version that fits."""
    best = reference.constraint.best(versions(reference, folder))
    return None if best is None else version_folder(reference, best, folder) / PROGRAM


def version_folder(reference: Reference, version: Version, folder: Path) -> Path:
    return folder / reference.place / folder_name(version)


def versions(reference: Reference, folder: Path) -> list[Version]:
    """That are installed and have a program."""
    try:
        names = os.listdir(folder / reference.place)
    except OSError:
        return []
    found = [version_of_folder(name) for name in names if is_program(folder / reference.place / name / PROGRAM)]
    return sorted((one for one in found if one is not None), key=lambda one: one.order)


def list_plugins(env: Mapping[str, str] = os.environ) -> list[FoundPlugin]:
    """All that there are, by name; first what is found first. Each program once."""
    every: dict[Path, FoundPlugin] = {}
    for one in (*_list_installed(plugin_folder(env)), *_list_on_path(env), *_list_distributions()):
        first = every.setdefault(one.program, one)
        every[one.program] = replace(first, version=first.version or one.version)
    newest_first = sorted(every.values(), key=_version_order, reverse=True)
    return sorted(newest_first, key=lambda one: (one.name, list(Where).index(one.where)))


def program_of_distribution(program: str) -> Path:
    """Where pip puts programs of distributions that are installed with us."""
    return Path(sys.executable).parent / program


def _find_entry_point(program: str) -> EntryPoint | None:
    known = entry_points(group=ENTRY_POINTS)
    return next((one for one in known if f"{PREFIX}{one.name}" == program), None)


def _list_installed(folder: Path) -> Iterator[FoundPlugin]:
    for top, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".")]
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
    for one in entry_points(group=ENTRY_POINTS):
        program = program_of_distribution(f"{PREFIX}{one.name}")
        if is_program(program):
            version = one.dist.version if one.dist is not None else ""
            yield FoundPlugin(name=one.name, where=Where.DISTRIBUTION, program=program, version=version)


def _list_on_path(env: Mapping[str, str]) -> Iterator[FoundPlugin]:
    for folder in path_folders(env):
        for program in sorted(folder.glob(f"{PREFIX}*")):
            if is_program(program):
                yield FoundPlugin(name=program.name.removeprefix(PREFIX), where=Where.ON_PATH, program=program)


def _version_order(one: FoundPlugin) -> tuple[Any, ...]:
    """Of installed ones; others have the order of PATH."""
    version = parse_version(one.version) if one.where is Where.INSTALLED else None
    return version.order if version is not None else ()


def _explain_missing(name: str, wanted: str, env: Mapping[str, str]) -> str:
    if places(name) == (Where.PATH,):
        return f"{name}: there is no such program, or it may not be executed; is the path right?"
    reference, folder = parse_reference(name), plugin_folder(env)
    there = ", ".join(one.text for one in versions(reference, folder))
    looked = [
        f"a version of {reference.text} in {folder / reference.place} ({there or 'none'} installed)",
        *([f"a program {wanted} on PATH and beside {sys.executable}"] if Where.ON_PATH in places(name) else []),
    ]
    advice = [f"install it, by `remuda plugin install {name}` or with pip"]
    if (distribution := _find_entry_point(wanted)) is not None and distribution.dist is not None:
        advice = [f"{program_of_distribution(wanted)} is missing: install {distribution.dist.name} anew"]
    advice.append(f"write ./{name} for the file of this folder" if Path(name).is_file() else "or give its path")
    return f"there is no plugin {name}. Looked for: {'; '.join(looked)}. To do: {', '.join(advice)}"
