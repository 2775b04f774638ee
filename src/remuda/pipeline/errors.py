"""The mistakes and warnings of a pipeline file, each with its file, line and column, and the exception for mistakes.

A mistake prevents the pipeline; a warning says that a part of the file does not do what its author may expect.

The same mistake at the same position is reported once, even if many jobs use the value through an anchor or template.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

import msgspec

MAX_MISTAKES = 1000
"""A hostile file could have a mistake per byte, and suggestions take time."""
MAX_WARNINGS = 50
"""Further warnings are only counted, because warnings are stored with the pipeline."""

_SHOWN_VALUE = 60
_SHOWN_KEY = 160
_SHOWN_FILE = 4096


class Placed(Protocol):
    """Something that has a position in a file; lines and columns start at 1."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...

    @property
    def file(self) -> str: ...


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A position in a file, for mistakes that concern no single value, such as a file without jobs."""

    line: int = 1
    column: int = 1
    file: str = ""
    """Empty: the file that the pipeline is compiled from."""


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """A mistake or warning about a pipeline file. `key`: the keyword's path. `suggestion` says how to correct it."""

    file: str
    line: int
    column: int
    key: str
    message: str
    suggestion: str = ""

    def __str__(self) -> str:
        return self.describe()

    def describe(self, severity: str = "") -> str:
        """Return `FILE:LINE:COLUMN: KEY: MESSAGE; SUGGESTION`, with `severity: ` before the key unless it is empty."""
        key = f"{severity}: " if severity else ""
        key += f"{printable(self.key, _SHOWN_KEY)}: " if self.key else ""
        suggestion = f"; {self.suggestion}" if self.suggestion else ""
        return f"{printable(self.file, _SHOWN_FILE)}:{self.line}:{self.column}: {key}{self.message}{suggestion}"


class PipelineError(Exception):
    """The pipeline file has mistakes: `errors`, never empty and ordered by their position. `warnings` is like it."""

    def __init__(self, errors: tuple[Mistake, ...], warnings: tuple[Mistake, ...] = ()) -> None:
        super().__init__(errors)
        self.errors = errors
        self.warnings = warnings

    def __str__(self) -> str:
        return "\n".join(str(mistake) for mistake in self.errors)


class Report:
    """Collects the mistakes and warnings of a pipeline file and of the files that it includes."""

    def __init__(self, file: str) -> None:
        self._files = {file: 0}
        self._mistakes: dict[tuple[str, int, int, str], Mistake] = {}
        self._warnings: dict[tuple[str, int, int, str], Mistake] = {}
        self._more_warnings = 0
        self._is_incomplete = False

    def __bool__(self) -> bool:
        return bool(self._mistakes)

    def add_file(self, file: str) -> None:
        """Register a file that is being read. In the result, mistakes of files registered earlier come first."""
        self._files.setdefault(file, len(self._files))

    def __len__(self) -> int:
        return len(self._mistakes)

    def hide_consequences(self) -> None:
        """From now on, add only mistakes that concern a value alone (`add_of_value`). Called if a part of the file is
        missing, such as an included file: other mistakes, such as an unknown job, may be caused by that."""
        self._is_incomplete = True

    def add(self, at: Placed, key: str, message: str, suggestion: str = "") -> None:
        """Add a mistake at the position `at`. `key`: path of the keyword. Raises `PipelineError` at `MAX_MISTAKES`.
        Does nothing after `hide_consequences`."""
        if not self._is_incomplete:
            self.add_of_value(at, key, message, suggestion)

    def add_of_value(self, at: Placed, key: str, message: str, suggestion: str = "") -> None:
        """Add a mistake that does not depend on other parts of the file, such as a value of a wrong type."""
        self._record(at, key, message, suggestion)
        if len(self._mistakes) >= MAX_MISTAKES:
            self.stop(at, "", f"gave up after {MAX_MISTAKES} mistakes", "correct these first")

    def warn(self, at: Placed, key: str, message: str, suggestion: str = "") -> None:
        """Add a warning at the position `at`. `key`: path of the keyword. After `MAX_WARNINGS` it is only counted."""
        if len(self._warnings) >= MAX_WARNINGS:
            self._more_warnings += 1
            return
        warning = self._make(at, key, message, suggestion)
        self._warnings.setdefault((warning.file, warning.line, warning.column, message), warning)

    def warnings(self) -> tuple[Mistake, ...]:
        """Return the warnings so far, ordered by their position; if there were too many, the last one says so."""
        warnings = self._sort(self._warnings)
        if not self._more_warnings:
            return warnings
        more = self._make(Place(), "", f"{self._more_warnings} more warnings are not shown", "")
        return (*warnings, more)

    def stop(self, at: Placed, key: str, message: str, suggestion: str = "") -> NoReturn:
        """Add a mistake after which the rest of the file cannot be checked, and raise `PipelineError`."""
        self._record(at, key, message, suggestion)
        raise self.error()

    def finish(self) -> None:
        """Raise `PipelineError` if there are mistakes."""
        if self._mistakes:
            raise self.error()

    def _record(self, at: Placed, key: str, message: str, suggestion: str) -> None:
        mistake = self._make(at, key, message, suggestion)
        self._mistakes.setdefault((mistake.file, at.line, at.column, message), mistake)

    def _make(self, at: Placed, key: str, message: str, suggestion: str) -> Mistake:
        file = at.file or next(iter(self._files))
        return Mistake(file=file, line=at.line, column=at.column, key=key, message=message, suggestion=suggestion)

    def _sort(self, mistakes: Mapping[Any, Mistake]) -> tuple[Mistake, ...]:
        files = self._files
        return tuple(
            sorted(mistakes.values(), key=lambda each: (files.get(each.file, len(files)), each.line, each.column))
        )

    def error(self) -> PipelineError:
        return PipelineError(self._sort(self._mistakes), self.warnings())


def printable(text: str, limit: int = _SHOWN_VALUE) -> str:
    """Cut the text to `limit` characters, and escape line breaks and control characters."""
    short = text if len(text) <= limit else text[: limit - 3] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)


def quote(text: str) -> str:
    """Quote a name or value from the user's file for messages, shortened and escaped."""
    return f'"{printable(text)}"'
