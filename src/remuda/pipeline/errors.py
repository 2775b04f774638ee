"""What is wrong with a pipeline file, as data: every mistake with its place, and the one error that carries them.

Decided here: how a mistake reads on one line, that the same mistake at the same place counts once (an anchor
used by thirty jobs is one place in the file), and that a file with very many mistakes is given up on. What
counts as a mistake is decided by the modules that read. Every module of this package reports through `Report`.

Invariant: `PipelineError.errors` is never empty and is ordered by file, line and column.
"""

from __future__ import annotations

from typing import NoReturn, Protocol

import msgspec

# A hostile file could hold a mistake per byte; nobody reads more than this, and suggestions cost time.
MAX_MISTAKES = 1000

_SHOWN_VALUE = 60
_SHOWN_KEY = 160
_SHOWN_FILE = 4096


class Placed(Protocol):
    """Anything that knows where in the file it stands, 1-based."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...

    @property
    def file(self) -> str: ...


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A bare position, for mistakes that belong to no value."""

    line: int = 1
    column: int = 1
    # Empty: the file the pipeline is compiled from.
    file: str = ""


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to correct in the file. `suggestion` is what to do about it, or empty."""

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
    """The pipeline file has mistakes; `errors` holds all of them in the order of the file."""

    def __init__(self, errors: tuple[Mistake, ...]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(str(mistake) for mistake in self.errors)


class Report:
    """Collects the mistakes of a pipeline file, and of the files it includes, while they are read."""

    def __init__(self, file: str) -> None:
        self._files = {file: 0}
        self._mistakes: dict[tuple[str, int, int, str], Mistake] = {}

    def __bool__(self) -> bool:
        return bool(self._mistakes)

    def opened(self, file: str) -> None:
        """Note that a file is read: mistakes come in the order of files."""
        self._files.setdefault(file, len(self._files))

    def add(self, at: Placed, key: str, message: str, suggestion: str = "") -> None:
        """Note a mistake and read on."""
        self._note(at, key, message, suggestion)
        if len(self._mistakes) >= MAX_MISTAKES:
            self.stop(at, "", f"gave up after {MAX_MISTAKES} mistakes", "correct these first")

    def stop(self, at: Placed, key: str, message: str, suggestion: str = "") -> NoReturn:
        """Note a mistake after which the rest of the file cannot be judged."""
        self._note(at, key, message, suggestion)
        raise self.error()

    def finish(self) -> None:
        """Raise if anything was noted."""
        if self._mistakes:
            raise self.error()

    def _note(self, at: Placed, key: str, message: str, suggestion: str) -> None:
        file = at.file or next(iter(self._files))
        mistake = Mistake(file=file, line=at.line, column=at.column, key=key, message=message, suggestion=suggestion)
        self._mistakes.setdefault((file, at.line, at.column, message), mistake)

    def error(self) -> PipelineError:
        """The error with all that was noted so far."""
        ordered = sorted(
            self._mistakes.values(), key=lambda m: (self._files.get(m.file, len(self._files)), m.line, m.column)
        )
        return PipelineError(tuple(ordered))


def printable(text: str, limit: int = _SHOWN_VALUE) -> str:
    """The text cut to `limit` characters and free of line breaks and control characters."""
    short = text if len(text) <= limit else text[: limit - 3] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)


def quote(text: str) -> str:
    """A name or value of the user's as messages show it."""
    return f'"{printable(text)}"'
