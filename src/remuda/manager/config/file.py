"""A configuration file as its author wrote it: changed in places, comments and order kept.

Decides how runners are found, added, changed and removed in the text. The file is readable by its owner only, and is
replaced as a whole, so a crash leaves the old one or the new one; where it is a link, what it leads to is replaced.
What is to be written, `register`, `registered` and `rotation` decide.

Invariant: whoever changes it changes what is there now (`changed`), one process after the other. A call to a server
takes its time, and a manager that runs may have put a new token in meanwhile.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions
from tomlkit.items import AoT, Table

from remuda.lib.files import write_whole
from remuda.manager.config.load import parse, read_regular
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
            text = read_regular(path)
            return cls(path, tomlkit.parse(text if text.endswith("\n") or not text else f"{text}\n"))
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

    @classmethod
    @contextmanager
    def changed(cls, path: Path, *, may_be_new: bool = False) -> "Iterator[ConfigFile]":
        """The file as it is now, written when the block ends well. Nothing may be awaited in there: others wait."""
        with _alone(path.resolve().parent):
            file = cls.read(path, may_be_new=may_be_new)
            yield file
            file.write()

    @property
    def text(self) -> str:
        return tomlkit.dumps(self._document)

    @property
    def runners(self) -> list[Table]:
        """The sections, to be changed in place."""
        found = self._document.get("runners")
        return list(found) if isinstance(found, AoT) else []

    def add(self, entry: Mapping[str, Any]) -> None:
        """One more runner, its sections included."""
        if "runners" not in self._document:
            self._document.append("runners", tomlkit.aot())
        runners = self._document["runners"]
        if not isinstance(runners, AoT):
            raise ConfigError(f"{self.path}: runners: is not a list of [[runners]] sections")
        before = runners[-1].as_string() if runners else self.text
        runners.append(_table(entry))
        if before:
            lines = len(before) - len(before.rstrip("\n"))
            runners[-1].trivia.indent = "\n" * max(2 - lines, 0)

    def same_as(self, entry: Table) -> list[Table]:
        """The sections here that are a runner of an earlier reading: it is known by its server and its token."""
        return [found for found in self.runners if all(found.get(key) == entry.get(key) for key in ("url", "token"))]

    def remove(self, entries: list[Table]) -> None:
        """Take runners out, as far as they are (still) there."""
        found = self._document.get("runners")
        if not isinstance(found, AoT):
            return
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


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time; the folder itself is locked, so nothing is left beside the file."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # reading or writing says what is wrong with it
        yield
        return
    try:
        with suppress(OSError):  # not every kind of disk has locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


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
