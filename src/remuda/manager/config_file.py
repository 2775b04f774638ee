"""A configuration file as its author wrote it: changed in places, comments and order kept.

Decides how runners are found, added, changed and removed in the text. The file is readable by its owner only, and is
replaced as a whole, so a crash leaves the old one or the new one; where it is a link, what it leads to is replaced.
What is to be written, `register`, `registered` and `rotation` decide.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions
from tomlkit.items import AoT, Table

from remuda.lib.files import write_whole
from remuda.manager.config import parse
from remuda.manager.errors import ConfigError, RegisterError

_NEW_FILE = {"concurrent": 1, "check_interval": 0}


class ConfigFile:
    """The document and the place it is kept at."""

    def __init__(self, path: Path, document: tomlkit.TOMLDocument) -> None:
        self.path = path
        self._document = document

    @classmethod
    def read(cls, path: Path, *, may_be_new: bool = False) -> "ConfigFile":
        """The file, or a new one's beginning."""
        try:
            return cls(path, tomlkit.parse(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            if not may_be_new:
                raise ConfigError(
                    f"{path}: there is no such file. Make one with: remuda manager register --config {path}"
                ) from None
            document = tomlkit.document()
            document.update(_NEW_FILE)
            return cls(path, document)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        except tomlkit.exceptions.ParseError as error:
            raise ConfigError(f"{path}:{error.line}: not valid TOML: {error}") from None

    @property
    def text(self) -> str:
        return tomlkit.dumps(self._document)

    @property
    def runners(self) -> list[Table]:
        """The sections, to be changed in place."""
        found = self._document.get("runners")
        return list(found) if isinstance(found, AoT) else []

    def with_runner(self, entry: Mapping[str, Any]) -> "ConfigFile":
        """A copy with one more runner, its sections included."""
        copy = ConfigFile(self.path, tomlkit.parse(self.text))
        if "runners" not in copy._document:
            copy._document.append("runners", tomlkit.aot())
        runners = copy._document["runners"]
        if not isinstance(runners, AoT):
            raise ConfigError(f"{self.path}: runners: is not a list of [[runners]] sections")
        runners.append(_table(entry))
        return copy

    def remove(self, entries: list[Table]) -> None:
        """Take runners out."""
        found = self._document["runners"]
        assert isinstance(found, AoT)
        for index in reversed(range(len(found))):
            if any(found[index] is entry for entry in entries):
                del found[index]
        if not found:
            del self._document["runners"]

    def check(self) -> None:
        """The file as it will be must be one that the manager takes."""
        parse(self.text, file=str(self.path), environment=os.environ)

    def write(self) -> None:
        """On the disk, for its owner only."""
        target = self.path.resolve()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, self.text.encode(), durable=True)
        except OSError as error:
            raise RegisterError(f"{self.path}: cannot be written: {error.strerror}") from error

    @property
    def is_writable(self) -> bool:
        """Whether a new version can be put in its place, as far as can be told before."""
        return os.access(self.path.resolve().parent, os.W_OK | os.X_OK)


def _table(entry: Mapping[str, Any]) -> Table:
    """A section: plain keys first, or they would belong to a section inside of it."""
    table = tomlkit.table()
    for key, value in entry.items():
        if not isinstance(value, Mapping) and not _is_list_of_tables(value):
            table.add(key, value)
    for key, value in entry.items():
        if isinstance(value, Mapping):
            table.add(key, _table(value))
        elif _is_list_of_tables(value):
            several = tomlkit.aot()
            for one in value:
                several.append(_table(one))
            table.add(key, several)
    return table


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)
