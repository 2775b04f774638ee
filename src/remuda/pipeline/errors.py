"""The mistakes of a pipeline file, each with its file, line and column, and the exception that carries all of them.

The same mistake at the same position is reported once, even if many jobs use the value through an anchor or template.
"""

from __future__ import annotations

from typing import NoReturn, Protocol

import msgspec

MAX_MISTAKES = 1000
"""A hostile file could have a mistake per byte, and suggestions take time."""

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
    """A mistake in a pipeline file. `key` is the path of the keyword; `suggestion` says how to correct it."""

    file: str
    line: int
    column: int
    key: str
    message: str
    suggestion: str = ""

    def __str__(self) -> str:
        key = f"{printable(self.key, _SHOWN_KEY)}: " if self.key else ""
        suggestion = f"; {self.suggestion}" if self.suggestion else ""
        return f"{printable(self.file, _SHOWN_FILE)}:{self.line}:{self.column}: {key}{self.message}{suggestion}"


class PipelineError(Exception):
    """The pipeline file has mistakes: `errors`, never empty and ordered by their position."""

    def __init__(self, errors: tuple[Mistake, ...]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(str(mistake) for mistake in self.errors)


class Report:
    """Collects the mistakes of a pipeline file and of the files that it includes."""

    def __init__(self, file: str) -> None:
        self._files = {file: 0}
        self._mistakes: dict[tuple[str, int, int, str], Mistake] = {}

    def __bool__(self) -> bool:
        return bool(self._mistakes)

    def add_file(self, file: str) -> None:
        """Register a file that is being read. In the result, mistakes of files registered earlier come first."""
        self._files.setdefault(file, len(self._files))

    def add(self, at: Placed, key: str, message: str, suggestion: str = "") -> None:
        """Add a mistake at the position `at`. `key`: path of the keyword. Raises `PipelineError` at `MAX_MISTAKES`."""
        self._record(at, key, message, suggestion)
        if len(self._mistakes) >= MAX_MISTAKES:
            self.stop(at, "", f"gave up after {MAX_MISTAKES} mistakes", "correct these first")

    def stop(self, at: Placed, key: str, message: str, suggestion: str = "") -> NoReturn:
        """Add a mistake after which the rest of the file cannot be checked, and raise `PipelineError`."""
        self._record(at, key, message, suggestion)
        raise self.error()

    def finish(self) -> None:
        """Raise `PipelineError` if there are mistakes."""
        if self._mistakes:
            raise self.error()

    def _record(self, at: Placed, key: str, message: str, suggestion: str) -> None:
        file = at.file or next(iter(self._files))
        mistake = Mistake(file=file, line=at.line, column=at.column, key=key, message=message, suggestion=suggestion)
        self._mistakes.setdefault((file, at.line, at.column, message), mistake)

    def error(self) -> PipelineError:
        ordered = sorted(
            self._mistakes.values(), key=lambda m: (self._files.get(m.file, len(self._files)), m.line, m.column)
        )
        return PipelineError(tuple(ordered))


def printable(text: str, limit: int = _SHOWN_VALUE) -> str:
    """Cut the text to `limit` characters, and escape line breaks and control characters."""
    short = text if len(text) <= limit else text[: limit - 3] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)


def quote(text: str) -> str:
    """Quote a name or value from the user's file for messages, shortened and escaped."""
    return f'"{printable(text)}"'
