"""Edits a configuration file, and keeps its comments and order. The file is replaced as a whole, readable by its owner
only; of a symbolic link the target is replaced.

Invariant: one process at a time reads, changes and writes the file (`edit`). Changes are not based on an earlier read,
because a running manager may have written a new token meanwhile, except a new token if the file is unreadable now."""

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
    def __init__(self, path: Path, document: tomlkit.TOMLDocument) -> None:
        self.path = path
        self._document = document

    @classmethod
    def read(cls, path: Path, *, may_be_new: bool = False) -> "ConfigFile":
        """Read the file; with `may_be_new` it may be missing. Raises ConfigError if it is unreadable or not TOML."""
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
    def edit(cls, path: Path, *, may_be_new: bool = False) -> "Iterator[ConfigFile]":
        """Lock and read the file, and write it when the `with` block ends without an error. The block must not await,
        because other processes wait for the lock."""
        with _lock(path.resolve().parent):
            file = cls.read(path, may_be_new=may_be_new)
            yield file
            file.write()

    @property
    def text(self) -> str:
        return tomlkit.dumps(self._document)

    @property
    def runners(self) -> list[Table]:
        """The `[[runners]]` sections. A change to one of them changes the document that `write` stores."""
        runners = self._document.get("runners")
        return list(runners) if isinstance(runners, AoT) else []

    def add(self, entry: Mapping[str, Any]) -> None:
        """Append a `[[runners]]` section. Raises ConfigError if `runners` is not a list."""
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
        """Return the sections with the same server and token as `entry`, a section of an earlier read of the file."""
        return [own for own in self.runners if all(own.get(key) == entry.get(key) for key in ("url", "token"))]

    def remove(self, entries: list[Table]) -> None:
        runners = self._document.get("runners")
        if not isinstance(runners, AoT):
            return
        for index in reversed(range(len(runners))):
            if any(runners[index] is entry for entry in entries):
                del runners[index]
        if not runners:
            del self._document["runners"]

    def check(self) -> None:
        parse(self.text, file=str(self.path), environment=os.environ)

    def write(self) -> None:
        """Write the file, readable by its owner only. Raises RegisterError if that fails."""
        target = self.path.resolve()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, self.text.encode(), durable=True)
        except OSError as error:
            raise RegisterError(f"{self.path}: cannot be written: {error.strerror}") from error

    @property
    def is_writable(self) -> bool:
        return os.access(self.path.resolve().parent, os.W_OK | os.X_OK)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Lock the file's folder within the `with` block; others wait. Without effect on file systems without locks."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # reading or writing reports the error
        yield
        return
    try:
        with suppress(OSError):  # not every file system has locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _table(entry: Mapping[str, Any]) -> Table:
    """Convert to a TOML table, subsections last: TOML assigns every key after a subsection's header to it."""
    table = tomlkit.table()
    for key, value in entry.items():
        if not isinstance(value, Mapping) and not _is_list_of_tables(value):
            table.add(key, value)
    for key, value in entry.items():
        if isinstance(value, Mapping):
            table.add(key, _table(value))
        elif _is_list_of_tables(value):
            tables = tomlkit.aot()
            for item in value:
                tables.append(_table(item))
            table.add(key, tables)
    return table


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
